//! `milepost completion`: what a shell needs to complete commands.

use std::process::ExitCode;

use clap::{Args, Command};
use clap_complete::Shell;

/// Print a completion script for a shell.
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  source <(milepost completion bash)
  milepost completion zsh > \"${fpath[1]}/_milepost\"
  milepost completion fish > ~/.config/fish/completions/milepost.fish")]
pub(crate) struct Completion {
    /// The shell
    shell: Shell,
}

impl Completion {
    pub(crate) fn run(self, mut program: Command) -> ExitCode {
        let mut script = Vec::new();
        clap_complete::generate(self.shell, &mut program, "milepost", &mut script);
        crate::print_line(String::from_utf8_lossy(&script).trim_end());
        ExitCode::SUCCESS
    }
}
