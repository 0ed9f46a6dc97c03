# Two commands: `make run` and `make test`. Both install what is missing.

SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help run test build

help:
	@echo "make run    build Milepost and start it here: \`milepost dev\`"
	@echo "make test   install what is missing, then check and test everything"

run: build
	target/debug/milepost dev

build:
	@scripts/provision build
	cargo build --locked -p milepost

test:
	@scripts/provision test
	scripts/test
