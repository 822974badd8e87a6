//! Edits of certificates: a certificate and its key that are used in place of those in files.
//! In: a configuration, the name or path of a certificate. Out: the edited configuration, or which certificates there are.
//! Limits: as in `live_edit.rs`.

use std::collections::BTreeSet;
use std::sync::Arc;

use super::{LiveEdit, find_listener, listed};
use crate::model::{CertificatePaths, Config, GivenCertificate, Listener, Pool, TlsIdentity};

/// The certificates that listeners present, and those that are presented to servers.
pub fn certificates_of(config: &Config) -> impl Iterator<Item = &CertificatePaths> {
    let of_listeners = config.listeners.iter().flat_map(certificates_on);
    let tls = config.pools.iter().filter_map(|pool| pool.tls.as_ref());
    of_listeners.chain(tls.filter_map(|tls| tls.client_cert.as_ref()))
}

/// The certificates of a listener in files.
fn certificates_on(listener: &Listener) -> &[CertificatePaths] {
    match listener.tls.as_ref().map(|tls| &tls.identity) {
        Some(TlsIdentity::Files(files)) => files,
        Some(TlsIdentity::SelfSigned) | None => &[],
    }
}

/// The path of the certificate that a command names: by this path, or by the name or address of a listener that has no
/// other certificate.
///
/// # Errors
/// The message says which certificates there are.
pub fn find_certificate(config: &Config, name: &str) -> Result<String, String> {
    if certificates_of(config).any(|certificate| certificate.cert == name) {
        return Ok(name.to_owned());
    }
    let Some(at) = find_listener(&config.listeners, name) else {
        return Err(unknown(config, name));
    };
    let listener = &config.listeners[at];
    match (certificates_on(listener), &listener.tls) {
        ([only], _) => Ok(only.cert.clone()),
        ([], Some(_)) => Err(format!(
            "listener {name:?} has a self-signed certificate, which cannot be replaced; help: add `certificates` to its `tls`"
        )),
        ([], None) => Err(format!("listener {name:?} has no `tls`")),
        (several, _) => Err(format!(
            "listener {name:?} has several certificates; name one of: {}",
            paths_of(several.iter())
        )),
    }
}

/// Uses the given certificate wherever the configuration names its path.
pub(super) fn set(
    config: &mut Config,
    path: &str,
    given: &Arc<GivenCertificate>,
) -> Result<bool, String> {
    if !certificates_of(config).any(|certificate| certificate.cert == path) {
        return Err(unknown(config, path));
    }
    let listeners = config.listeners.iter_mut().filter_map(|listener| listener.tls.as_mut());
    let of_listeners = listeners.flat_map(|tls| match &mut tls.identity {
        TlsIdentity::Files(files) => files.as_mut_slice(),
        TlsIdentity::SelfSigned => &mut [],
    });
    let tls = config.pools.iter_mut().filter_map(|pool| pool.tls.as_mut());
    let mut has_changed = false;
    for certificate in of_listeners.chain(tls.filter_map(|tls| tls.client_cert.as_mut())) {
        if certificate.cert == path && certificate.given.as_ref() != Some(given) {
            certificate.given = Some(Arc::clone(given));
            has_changed = true;
        }
    }
    Ok(has_changed)
}

/// Uses the certificates that commands have given for paths that a new pool names as well.
pub(super) fn share(config: &Config, pool: &mut Pool) {
    let Some(own) = pool.tls.as_mut().and_then(|tls| tls.client_cert.as_mut()) else { return };
    let mut known = certificates_of(config).filter(|known| known.cert == own.cert);
    own.given = known.find_map(|known| known.given.clone());
}

/// Adds the edits that set the certificates of `edited`, each path once. No file contains such certificates.
pub(super) fn compare(edited: &Config, edits: &mut Vec<LiveEdit>) {
    let mut known = BTreeSet::new();
    for after in certificates_of(edited) {
        if let Some(given) = &after.given
            && known.insert(&after.cert)
        {
            let (path, given) = (after.cert.clone(), Arc::clone(given));
            edits.push(LiveEdit::SetCertificate { path, given });
        }
    }
}

fn unknown(config: &Config, name: &str) -> String {
    format!("no certificate {name:?}; the certificates are: {}", paths_of(certificates_of(config)))
}

/// The paths, each once.
fn paths_of<'c>(certificates: impl Iterator<Item = &'c CertificatePaths>) -> String {
    let paths: BTreeSet<&String> = certificates.map(|one| &one.cert).collect();
    listed(paths.into_iter().cloned())
}

#[cfg(test)]
mod tests {
    use super::super::differences;
    use super::super::tests::no_files;
    use super::*;
    use crate::parse;

    const FILE: &str = "[[listener]]\nname = \"web\"\nbind = \"127.0.0.1:80\"\n\
        tls = { certificates = [{ cert = \"/a.pem\", key = \"/a.key\" }, { cert = \"/b.pem\", key = \"/b.key\" }] }\n\
        [[listener]]\nname = \"one\"\nbind = \"127.0.0.1:81\"\n\
        tls = { certificates = [{ cert = \"/a.pem\", key = \"/a.key\" }] }\n\
        [[listener]]\nname = \"own\"\nbind = \"127.0.0.1:82\"\ntls = \"self-signed\"\n\
        [[listener]]\nname = \"plain\"\nbind = \"127.0.0.1:83\"\n\
        [[route]]\nproxy = \"p\"\n\
        [pool.p]\nservers = [\"10.0.0.1:1\"]\ntls = { client-cert = { cert = \"/c.pem\", key = \"/c.key\" } }\n";

    fn file() -> Config {
        parse(FILE, "the test").expect("it is valid")
    }

    fn set(path: &str, pem: &str) -> LiveEdit {
        let given = GivenCertificate { pem: pem.into(), summary: format!("names {pem}") };
        LiveEdit::SetCertificate { path: path.to_owned(), given: Arc::new(given) }
    }

    #[test]
    fn certificate_is_replaced_wherever_its_path_is_named() {
        let (file, mut edited) = (file(), file());
        for (edit, changes) in [
            (set("/a.pem", "x"), true),
            (set("/a.pem", "x"), false),
            (set("/a.pem", "y"), true),
            (set("/c.pem", "z"), true),
        ] {
            assert_eq!(edit.apply(&mut edited, &no_files()), Ok(changes), "{edit}");
        }
        let given: Vec<_> = certificates_of(&edited)
            .map(|one| one.given.as_ref().map_or("", |given| given.summary.as_str()))
            .collect();
        assert_eq!(given, ["names y", "", "names y", "names z"]);
        let edits = differences(&file, &edited);
        let texts: Vec<_> = edits.iter().map(ToString::to_string).collect();
        assert_eq!(texts, ["set tls cert /a.pem << (names y)", "set tls cert /c.pem << (names z)"]);
        let mut again = file;
        for edit in &edits {
            assert_eq!(edit.apply(&mut again, &no_files()), Ok(true), "{edit}");
        }
        assert_eq!(again, edited);
    }

    #[test]
    fn added_pool_uses_the_given_certificate_of_its_path() {
        let mut edited = file();
        let text = "{ servers = [\"10.0.0.2:1\"], tls = { client-cert = { cert = \"/c.pem\", key = \"/c.key\" } } }";
        let added = LiveEdit::AddPool { pool: "q".to_owned(), text: text.to_owned() };
        for edit in [set("/c.pem", "z"), added, LiveEdit::RemoveRoute { route: "*".to_owned() }] {
            assert_eq!(edit.apply(&mut edited, &no_files()), Ok(true), "{edit}");
        }
        let given = certificates_of(&edited).last().and_then(|last| last.given.as_ref());
        assert_eq!(given.map(|given| given.summary.as_str()), Some("names z"));
        let removed = LiveEdit::RemovePool { pool: "p".to_owned() };
        assert_eq!(removed.apply(&mut edited, &no_files()), Ok(true));
        let texts: Vec<_> = differences(&file(), &edited).iter().map(ToString::to_string).collect();
        let expected = [
            "del route *",
            "del pool p",
            &format!("add pool q {text}"),
            "set tls cert /c.pem << (names z)",
        ];
        assert_eq!(texts, expected);
    }

    #[test]
    fn certificates_are_known_by_path_and_by_listener() {
        let config = file();
        let find = |name: &str| find_certificate(&config, name);
        for (name, path) in [
            ("/b.pem", "/b.pem"),
            ("/c.pem", "/c.pem"),
            ("one", "/a.pem"),
            ("127.0.0.1:81", "/a.pem"),
        ] {
            assert_eq!(find(name).as_deref(), Ok(path));
        }
        for (name, part) in [
            ("/d.pem", "the certificates are: /a.pem, /b.pem, /c.pem"),
            ("/a.key", "no certificate"),
            ("web", "name one of: /a.pem, /b.pem"),
            ("own", "self-signed"),
            ("plain", "has no `tls`"),
        ] {
            let refusal = find(name).expect_err("it is refused");
            assert!(refusal.contains(part), "{name}: {refusal}");
        }
        let (mut edited, edit) = (config.clone(), set("one", "x"));
        assert!(
            edit.apply(&mut edited, &no_files())
                .is_err_and(|why| why.contains("no certificate \"one\""))
        );
        assert_eq!(edited, config);
    }
}
