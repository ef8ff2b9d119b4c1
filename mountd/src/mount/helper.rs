//! `fusermount3`, which mounts and unmounts for those who may not themselves.

use std::io::{self, ErrorKind};
use std::os::unix::process::CommandExt as _;
use std::path::Path;
use std::process::{Command, Output};

use rustix::io::Errno;

use crate::fault::Fault;

const HELPER: &str = "fusermount3";

/// The helper, which a second interrupt from the terminal must not end half-way.
pub(super) fn command() -> Command {
    let mut command = Command::new(HELPER);
    command.process_group(0);
    command
}

/// What it printed, where it did what it was asked for.
pub(super) fn succeeded(path: &Path, output: io::Result<Output>) -> Result<Output, Fault> {
    match output {
        Ok(output) if output.status.success() => Ok(output),
        Ok(output) => Err(refused(path, &output)),
        Err(error) => {
            let errno = Errno::from_io_error(&error).unwrap_or(Errno::IO);
            Err(match error.kind() {
                ErrorKind::NotFound | ErrorKind::PermissionDenied => {
                    Fault::FusermountMissing { errno }
                }
                _ => Fault::System { step: "start fusermount3", errno },
            })
        }
    }
}

/// That it didn't, in its own words.
pub(super) fn refused(path: &Path, output: &Output) -> Fault {
    Fault::FusermountRefused {
        path: path.to_owned(),
        status: output.status.to_string(),
        stderr: String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    }
}
