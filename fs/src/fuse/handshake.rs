//! What is asked of the kernel when a connection begins.

use fuser::{InitFlags, KernelConfig};

use super::Features;

/// Bytes that one request may write.
const MAX_WRITE: u32 = 1 << 20;

/// What is asked of the kernel where it has it.
const WANTED: [InitFlags; 11] = [
    InitFlags::FUSE_ATOMIC_O_TRUNC,
    InitFlags::FUSE_DONT_MASK,
    InitFlags::FUSE_POSIX_ACL,
    InitFlags::FUSE_PARALLEL_DIROPS,
    InitFlags::FUSE_HANDLE_KILLPRIV_V2,
    InitFlags::FUSE_CACHE_SYMLINKS,
    InitFlags::FUSE_DO_READDIRPLUS,
    InitFlags::FUSE_READDIRPLUS_AUTO,
    InitFlags::FUSE_PASSTHROUGH,
    InitFlags::FUSE_HAS_RESEND,
    InitFlags::FUSE_DIRECT_IO_ALLOW_MMAP,
];

/// Asks for all of it that the kernel has; what it has.
pub(super) fn agree(config: &mut KernelConfig) -> Features {
    // Below 1 the kernel passes nothing through; above it, nothing could be stacked on us.
    let _ = config.set_max_stack_depth(1);
    let _ = config.set_max_write(MAX_WRITE);
    for flag in WANTED {
        let _ = config.add_capabilities(flag);
    }
    let offered = config.capabilities();
    Features {
        passthrough: offered.contains(InitFlags::FUSE_PASSTHROUGH),
        prunes: false,
        resend: offered.contains(InitFlags::FUSE_HAS_RESEND),
        minor: config.kernel_abi().1,
    }
}
