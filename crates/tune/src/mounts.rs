//! Read-only mounts of /proc and /sys, as containers have them.
//! In: a host, a path. Out: the mount point that makes the path read-only, if any.
//! Never: tests this by writing.

use crate::host::Host;

/// The mount point that makes `path` read-only for this process; `None` if the path is writable, or if the mounts
/// cannot be read.
#[must_use]
pub fn read_only_mount(host: &Host, path: &str) -> Option<String> {
    // proc_pid_mountinfo(5): id, parent, device, root, mount point, options, then optional fields.
    let mounts = host.read("/proc/self/mountinfo").ok()?;
    let mut found: Option<(&str, bool)> = None;
    for line in mounts.lines() {
        let mut fields = line.split_whitespace().skip(4);
        let (Some(point), Some(options)) = (fields.next(), fields.next()) else {
            continue;
        };
        // Of two mounts on one mount point, the later one is visible.
        let is_nearer = found.is_none_or(|(nearest, _)| point.len() >= nearest.len());
        if is_nearer && covers(point, path) {
            found = Some((point, options.split(',').any(|option| option == "ro")));
        }
    }
    found.and_then(|(point, is_read_only)| is_read_only.then(|| point.to_owned()))
}

fn covers(point: &str, path: &str) -> bool {
    path.strip_prefix(point.trim_end_matches('/'))
        .is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;

    #[test]
    fn longest_matching_mount_decides() {
        let root = std::env::temp_dir().join(format!("tidegate-mounts-{}", std::process::id()));
        fs::create_dir_all(root.join("proc/self")).unwrap();
        let mounts = "1 0 0:1 / / ro - overlay o rw\n\
            2 1 0:2 / /proc rw,nosuid - proc p rw\n\
            3 2 0:2 /sys /proc/sys ro,nosuid - proc p rw\n\
            4 1 0:3 / /sys ro - sysfs s rw\n\
            5 4 0:3 / /sys rw - sysfs s rw\n";
        fs::write(root.join("proc/self/mountinfo"), mounts).unwrap();
        let host = Host::recorded(&root);
        let of = |path| read_only_mount(&host, path);
        assert_eq!(of("/proc/sys/net/core/somaxconn").as_deref(), Some("/proc/sys"));
        assert_eq!(of("/proc/system"), None, "/proc/system is not below /proc/sys");
        assert_eq!(of("/sys/class/net/eth0/mtu"), None, "the later mount is visible");
        assert_eq!(of("/etc/sysctl.d/x").as_deref(), Some("/"));
        fs::remove_dir_all(&root).unwrap();
        assert_eq!(
            of("/proc/sys/net/core/somaxconn"),
            None,
            "without mountinfo the path counts as writable"
        );
    }
}
