#!/usr/bin/env bash
# Skills in bash, with nothing but bash: milepost worker --skills-from examples/workers/words.sh
# Speaks the protocol of docs/workers.md: one line of JSON at a time.

echo '{"skills": ["words.count"]}'

text='"input":\{"text":"(([^"\\]|\\.)*)"\}'
while read -r line; do
    [[ $line == '{"task":'* ]] || continue
    if [[ $line =~ $text ]]; then
        # The text is taken as JSON has it: a quote inside is \", a line's end \n.
        read -ra words <<<"${BASH_REMATCH[1]//\\n/ }"
        # What goes to standard error is the step's log.
        echo "counted ${#words[@]} words" >&2
        echo "{\"completed\": {\"words\": ${#words[@]}}}"
    else
        echo '{"failed": {"code": "bad_input", "message": "write input: {text: …}", "retryable": false}}'
    fi
done
