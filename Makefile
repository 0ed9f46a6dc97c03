# Two commands: `make run` and `make test`. Both install what is missing.

SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help run test build

help:
	@echo "make run    build Milepost and run the campaign example with live progress"
	@echo "make test   install what is missing, then check and test everything"

run: build
	target/debug/milepost run examples/campaign.yaml

build:
	@scripts/provision build
	cargo build --locked -p milepost

test:
	@scripts/provision test
	scripts/test
