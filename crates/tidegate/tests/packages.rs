//! The Debian package and the image, built from the binary of the tests and taken apart again.
//! In: scripts/deb.sh, scripts/image.sh. Out: their files, metadata and scripts, and the binary in them, which runs.
//! Never: installs a package, needs a daemon, or writes outside of a temporary folder.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use serde_json::Value;
use tidegate_testing::{command, run};

const PROGRAM: &str = env!("CARGO_BIN_EXE_tidegate");

/// A temporary folder of one test, removed when the test ends.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("tidegate-{}-{name}", std::process::id()));
        fs::create_dir_all(&path).expect("a folder can be made");
        Self(path)
    }

    fn text(&self, path: impl AsRef<Path>) -> String {
        let path = self.0.join(path);
        fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// What a program prints that must succeed.
fn run_well(command: &mut Command) -> String {
    let Output { status, stdout, stderr } = run(command);
    assert!(status.success(), "{command:?}: {}{}", text(&stdout), text(&stderr));
    text(&stdout)
}

/// Runs a script of the repository. Returns the path that it prints.
fn build(script: &str, folder: &Folder) -> PathBuf {
    let script = format!("{}/../../scripts/{script}", env!("CARGO_MANIFEST_DIR"));
    let mut command = command(&script);
    // The binary of the tests is large, and its size does not matter here.
    let printed =
        run_well(command.arg(PROGRAM).arg(&folder.0).env("COMPRESSION", "none").env("LEVEL", "1"));
    PathBuf::from(printed.trim_end())
}

fn package(folder: &Folder) -> PathBuf {
    let package = build("deb.sh", folder);
    let root = folder.0.join("root");
    run_well(command("dpkg-deb").arg("--raw-extract").arg(&package).arg(&root));
    package
}

#[test]
fn debian_package_has_the_service_its_configuration_and_the_documents() {
    let folder = Folder::new("deb");
    let package = package(&folder);
    let field = |name: &str| {
        run_well(command("dpkg-deb").arg("--field").arg(&package).arg(name)).trim_end().to_owned()
    };
    assert_eq!(
        (field("Package"), field("Version")),
        ("tidegate".into(), env!("CARGO_PKG_VERSION").into())
    );
    assert!(field("Depends").starts_with("libc6 (>= 2."), "{}", field("Depends"));
    let conffiles = "/etc/tidegate/tidegate.toml\n/etc/logrotate.d/tidegate\n";
    assert_eq!(folder.text("root/DEBIAN/conffiles"), conffiles);
    let sums = run(command("md5sum")
        .args(["--check", "--quiet", "DEBIAN/md5sums"])
        .current_dir(folder.0.join("root")));
    assert!(sums.status.success(), "{}", text(&sums.stdout));
    for path in [
        "usr/lib/sysusers.d/tidegate.conf",
        "usr/lib/tmpfiles.d/tidegate.conf",
        "usr/share/doc/tidegate/copyright",
        "usr/share/doc/tidegate/changelog.gz",
        "usr/share/doc/tidegate/CHANGELOG.md",
        "usr/share/doc/tidegate/docs/operations.md",
        "usr/share/man/man1/tidegate-ctl.1.gz",
        "usr/share/bash-completion/completions/tidegate",
    ] {
        assert!(folder.0.join("root").join(path).exists(), "{path}");
    }
    // The unit's commands accept the configuration of the package.
    let unit = folder.text("root/usr/lib/systemd/system/tidegate.service");
    for line in [
        "Type=notify-reload\n",
        "WatchdogSec=30\n",
        "User=tidegate\n",
        "ExecStartPre=/usr/bin/tidegate check /etc/tidegate/tidegate.toml\n",
        "ExecStart=/usr/bin/tidegate run /etc/tidegate/tidegate.toml\n",
    ] {
        assert!(unit.contains(line), "{line}");
    }
    let binary = folder.0.join("root/usr/bin/tidegate");
    // The installation makes the folder of the socket.
    let file = folder.text("root/etc/tidegate/tidegate.toml");
    let file = file.replace("/run/tidegate", &folder.0.display().to_string());
    fs::write(folder.0.join("tidegate.toml"), file).expect("a file can be written");
    run_well(command(binary).arg("check").arg(folder.0.join("tidegate.toml")));
    // The owner is root, whoever has built the package.
    let listed = run_well(command("dpkg-deb").arg("--contents").arg(&package));
    assert!(listed.lines().all(|line| line.contains(" root/root ")), "{listed}");
    check_with_lintian(&package);
}

/// The distribution's own check, where it is installed.
fn check_with_lintian(package: &Path) {
    let arguments = ["--allow-root", "--fail-on", "error,warning", "--suppress-tags"];
    // The binary of the tests has debug information, and its package is not compressed.
    let known = "unstripped-binary-or-object,uses-no-compression-for-control-tarball,\
        uses-no-compression-for-data-tarball";
    match Command::new("lintian").args(arguments).arg(known).arg(package).output() {
        Err(error) => assert_eq!(error.kind(), std::io::ErrorKind::NotFound),
        Ok(output) => assert!(output.status.success(), "{}", text(&output.stdout)),
    }
}

/// Runs a script of the package with programs that only write down how they are called. Returns the calls.
fn calls(folder: &Folder, script: &str, arguments: &[&str], service_runs: bool) -> String {
    let programs = folder.0.join("programs");
    let log = folder.0.join("calls");
    fs::create_dir_all(&programs).expect("a folder can be made");
    let _ = fs::remove_file(&log);
    let stub = format!(
        "#!/bin/sh\necho \"${{0##*/}} $*\" >>{}\ncase \"$*\" in *is-active*) exit {};; esac\n",
        log.display(),
        i32::from(!service_runs)
    );
    for name in [
        "systemctl",
        "systemd-sysusers",
        "systemd-tmpfiles",
        "getent",
        "chown",
        "chmod",
        "rm",
        "useradd",
        "groupadd",
    ] {
        let path = programs.join(name);
        let _ = fs::remove_file(&path);
        fs::write(&path, &stub).expect("a file can be written");
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).expect("it can be run");
    }
    // systemd seems to run.
    let text = folder.text(format!("root/DEBIAN/{script}")).replace("/run/systemd/system", "/");
    let copy = folder.0.join(script);
    fs::write(&copy, text).expect("a file can be written");
    let path = format!("{}:/usr/bin:/bin", programs.display());
    run_well(command("/bin/sh").arg(&copy).args(arguments).env("PATH", path));
    fs::read_to_string(&log).unwrap_or_default()
}

#[test]
fn installation_starts_nothing_and_an_update_replaces_the_running_process() {
    let folder = Folder::new("deb-scripts");
    package(&folder);
    let first = calls(&folder, "postinst", &["configure", ""], false);
    assert!(first.starts_with("systemd-sysusers /usr/lib/sysusers.d/tidegate.conf\n"), "{first}");
    assert!(first.contains("systemd-tmpfiles --create tidegate.conf\n"), "{first}");
    assert!(first.contains("chmod 0640 /etc/tidegate/tidegate.toml\n"), "{first}");
    let last = first.lines().filter(|line| line.starts_with("systemctl"));
    assert_eq!(last.collect::<Vec<_>>(), ["systemctl daemon-reload"]);
    let update = calls(&folder, "postinst", &["configure", "0.0.9"], true);
    let upgrade = "systemctl kill --kill-whom=main --signal=SIGUSR2 tidegate.service\n";
    assert!(update.ends_with(upgrade), "{update}");
    let idle = calls(&folder, "postinst", &["configure", "0.0.9"], false);
    assert!(!idle.contains("kill"), "{idle}");
    assert_eq!(calls(&folder, "prerm", &["upgrade", "0.2.0"], true), "");
    let removal = calls(&folder, "prerm", &["remove"], true);
    assert_eq!(removal, "systemctl --no-reload disable --now tidegate.service\n");
    let purge = calls(&folder, "postrm", &["purge"], false);
    assert_eq!(purge, "rm -rf /var/lib/tidegate /var/log/tidegate\nsystemctl daemon-reload\n");
}

/// The instructions of the recipe with this name.
fn instruction<'r>(recipe: &'r str, name: &str) -> &'r str {
    let line = recipe.lines().find_map(|line| line.strip_prefix(&format!("{name} ")));
    line.unwrap_or_else(|| panic!("no {name}"))
}

#[test]
fn image_has_valid_digests_and_its_binary_runs_without_files_of_this_system() {
    let folder = Folder::new("image");
    let archive = build("image.sh", &folder);
    let (layout, root) = (folder.0.join("unpacked"), folder.0.join("unpacked-root"));
    fs::create_dir_all(&layout).expect("a folder can be made");
    fs::create_dir_all(&root).expect("a folder can be made");
    run_well(
        command("tar").arg("--extract").arg("--file").arg(&archive).arg("--directory").arg(&layout),
    );
    let json = |path: &Path| -> Value {
        serde_json::from_slice(&fs::read(path).expect("it is there")).expect("it is JSON")
    };
    assert_eq!(json(&layout.join("oci-layout"))["imageLayoutVersion"], "1.0.0");
    // Every descriptor states the size and the digest of its blob.
    let blob = |descriptor: &Value| {
        let digest = descriptor["digest"].as_str().expect("a digest");
        let path = layout.join("blobs").join(digest.replace(':', "/"));
        let sum = run_well(command("sha256sum").arg(&path));
        assert!(sum.starts_with(digest.trim_start_matches("sha256:")), "{digest}: {sum}");
        let size = fs::metadata(&path).expect("it is there").len();
        assert_eq!(descriptor["size"].as_u64(), Some(size), "{digest}");
        path
    };
    let index = json(&layout.join("index.json"));
    let manifest = json(&blob(&index["manifests"][0]));
    let config = json(&blob(&manifest["config"]));
    let layer = blob(&manifest["layers"][0]);
    assert_eq!(manifest["layers"].as_array().map(Vec::len), Some(1));
    let unpack = "gzip --decompress --stdout \"$1\" | sha256sum";
    let plain = run_well(command("sh").args(["-c", unpack, "sh"]).arg(&layer));
    let difference = config["rootfs"]["diff_ids"][0].as_str().expect("a digest");
    assert_eq!(difference, format!("sha256:{}", plain.split(' ').next().unwrap_or_default()));
    // The configuration is that of the recipe.
    let recipe = include_str!("../../../packaging/Containerfile");
    let parsed = |name: &str| -> Value {
        serde_json::from_str(instruction(recipe, name)).expect("it is JSON")
    };
    assert_eq!(config["config"]["Entrypoint"], parsed("ENTRYPOINT"));
    assert_eq!(config["config"]["Cmd"], parsed("CMD"));
    assert_eq!(config["config"]["User"], instruction(recipe, "USER"));
    // The binary with the loader and the libraries of the image, and the image's own configuration.
    run_well(
        command("tar").arg("--extract").arg("--file").arg(&layer).arg("--directory").arg(&root),
    );
    let loader =
        ["lib64/ld-linux-x86-64.so.2", "lib/ld-linux-aarch64.so.1"].map(|path| root.join(path));
    let loader = loader.iter().find(|path| path.exists()).expect("a loader");
    let folders = ["lib/x86_64-linux-gnu", "lib/aarch64-linux-gnu", "lib64", "lib"];
    let libraries = folders.map(|path| root.join(path).display().to_string()).join(":");
    let file = root.join("etc/tidegate/tidegate.toml");
    let mut check = command(loader);
    check.args(["--inhibit-cache", "--library-path", &libraries]);
    run_well(check.arg(root.join("usr/bin/tidegate")).arg("check").arg(&file));
}

#[test]
fn equal_contents_give_an_equal_image() {
    let (one, other) = (Folder::new("image-one"), Folder::new("image-other"));
    let [one, other] = [&one, &other].map(|folder| build("image.sh", folder));
    let sums = run_well(command("sha256sum").arg(&one).arg(&other));
    let digests: Vec<_> = sums.lines().filter_map(|line| line.split(' ').next()).collect();
    assert_eq!(digests[0], digests[1]);
}
