//! Extended attributes, and the ACLs that are kept in them.

use std::ffi::OsStr;
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::sync::Arc;

use rustix::fs::{XattrFlags, getxattr, listxattr, removexattr, setxattr};
use rustix::io::Errno;

use super::attributes::Kinds;
use super::{Caller, TempFs, link_to};
use crate::error::Error;
use crate::node::Node;

/// What the kernel lets a value or a list have at the most.
const GREATEST: usize = 64 * 1024;

/// Names of attributes that decide who may do what.
const ACCESS_LISTS: [&[u8]; 2] = [ACCESS_LIST, b"system.posix_acl_default"];

/// The one that decides about the inode itself.
const ACCESS_LIST: &[u8] = b"system.posix_acl_access";

impl TempFs {
    /// The value of an attribute.
    ///
    /// # Errors
    /// The store's.
    pub fn attribute(&self, node: Node, name: &OsStr) -> Result<Vec<u8>, Error> {
        if node.is_above_generations() {
            return Err(if is_access_list(name) { Errno::NODATA } else { Errno::OPNOTSUPP }.into());
        }
        let path = self.path_of_node(node)?;
        grow(|buffer| getxattr(link_to(&path), name, buffer))
    }

    /// The names of all attributes that a caller may know of, each with a zero behind it.
    ///
    /// # Errors
    /// The store's.
    pub fn attribute_names(&self, caller: &Caller, node: Node) -> Result<Vec<u8>, Error> {
        if node.is_above_generations() {
            return Ok(Vec::new());
        }
        let path = self.path_of_node(node)?;
        let names = grow(|buffer| listxattr(link_to(&path), buffer))?;
        if caller.uid == 0 {
            return Ok(names);
        }
        // The store answers to the daemon, which may see the trusted ones.
        Ok(names
            .split_inclusive(|byte| *byte == 0)
            .filter(|name| !name.starts_with(b"trusted."))
            .flatten()
            .copied()
            .collect())
    }

    /// Sets an attribute.
    ///
    /// # Errors
    /// The store's; on structural directories as the namespace allows.
    pub fn set_attribute(
        &self,
        caller: &Caller,
        node: Node,
        name: &OsStr,
        value: &[u8],
        flags: u32,
    ) -> Result<(), Error> {
        if self.refuses_attribute(caller, node, name)? {
            return Ok(());
        }
        let path = self.path_of_node(node)?;
        setxattr(link_to(&path), name, value, XattrFlags::from_bits_retain(flags))?;
        if name.as_bytes() == ACCESS_LIST {
            self.drop_foreign_group(caller, &path, Kinds::All)?;
        }
        Ok(())
    }

    /// Removes an attribute.
    ///
    /// # Errors
    /// The store's; on structural directories as the namespace allows.
    pub fn remove_attribute(&self, caller: &Caller, node: Node, name: &OsStr) -> Result<(), Error> {
        if self.refuses_attribute(caller, node, name)? {
            return Ok(());
        }
        let path = self.path_of_node(node)?;
        Ok(removexattr(link_to(&path), name)?)
    }

    /// Whether an attribute stays what it is although the caller is not told so: the owner's
    /// change of who may do what with a directory whose permissions are the namespace's.
    fn refuses_attribute(&self, caller: &Caller, node: Node, name: &OsStr) -> Result<bool, Error> {
        if node.is_above_generations() {
            return Err(Error::AboveGenerations);
        }
        if !self.structure().is_structural(node) || !is_access_list(name) {
            return Ok(false);
        }
        if self.attributes(node)?.uid == caller.uid {
            Ok(true)
        } else {
            Err(Error::AboveGenerations)
        }
    }

    fn path_of_node(&self, node: Node) -> Result<Arc<OwnedFd>, Error> {
        self.path(&*self.tree(node)?, node)
    }
}

fn is_access_list(name: &OsStr) -> bool {
    ACCESS_LISTS.contains(&name.as_bytes())
}

/// Asks with a small buffer, and again with the greatest if that was too small.
fn grow(ask: impl Fn(&mut [u8]) -> Result<usize, Errno>) -> Result<Vec<u8>, Error> {
    let mut buffer = vec![0; 256];
    let length = match ask(&mut buffer) {
        Err(Errno::RANGE) => {
            buffer.resize(GREATEST, 0);
            ask(&mut buffer)?
        }
        answer => answer?,
    };
    buffer.truncate(length);
    Ok(buffer)
}
