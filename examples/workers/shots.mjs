// Skills in JavaScript, without a package: milepost worker --skills-from 'node examples/workers/shots.mjs'
// Speaks the protocol of docs/workers.md: one line of JSON at a time.

import { createInterface } from 'node:readline'
import { setTimeout as sleep } from 'node:timers/promises'

const say = (message) => process.stdout.write(JSON.stringify(message) + '\n')

const skills = {
  // Renders a shot in `frames` frames, and stops between two of them when it is told to.
  async 'shots.render'({ shot, frames = 4 }, { signal }) {
    for (let frame = 1; frame <= frames; frame++) {
      await sleep(5, undefined, { signal })
      say({ progress: { percent: (100 * frame) / frames } })
    }
    console.error(`rendered ${shot}`) // The step's log.
    return { file: `${shot}.png`, frames }
  },
  async 'shots.check'({ file }) {
    if (!file.endsWith('.png')) throw Object.assign(new Error(`${file} is no picture`), { code: 'bad_file', retryable: false })
    return { ok: true }
  },
}

let stopping
say({ skills: Object.keys(skills) })
for await (const line of createInterface({ input: process.stdin })) {
  const { task, cancel } = JSON.parse(line)
  if (cancel) stopping?.abort()
  // Not awaited: the word to stop comes while the task is under way.
  if (task) carryOut(task, (stopping = new AbortController()))
}

async function carryOut({ skill, input }, { signal }) {
  try {
    say({ completed: await skills[skill](input, { signal }) })
  } catch (error) {
    say({ failed: { code: error.code ?? 'failed', message: error.message, retryable: error.retryable ?? true } })
  }
}
