# Two commands: `make run` and `make test`. Both install what is missing.

SHELL := /bin/bash
.DEFAULT_GOAL := help

.PHONY: help run test build fmt lint check-docs provision

help:
	@echo "make run    build Milepost and run the campaign example with live progress"
	@echo "make test   install what is missing, then check and test everything"

run: build
	target/debug/milepost run examples/campaign.yaml --payload @examples/campaign.json

build:
	@scripts/provision build
	cargo build --locked -p milepost

test:
	@scripts/provision test
	scripts/test
