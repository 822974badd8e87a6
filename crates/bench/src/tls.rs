//! TLS of the client: the operator's options, and the plan of a thread's TLS layer.
//! In: arguments, CA files. Out: a `TlsPlan`, or an error with the correct form.
//! Never: accepts an unverified certificate without --accept-any-certificate; offers a protocol that it
//! does not speak in this run: HTTP/1.1, or HTTP/2 with --http2.
//! Limits: `TICKETS_MAX` tickets per server and thread.

use crate::target::Url;
use std::path::PathBuf;
use tidegate_secure::{PoolPlan, ServerPlan, TlsPlan, system_roots};
use tidegate_wire::tls::{
    CIPHER_NAMES, CertificateFault, Connector, ConnectorSettings, Facts, Fault, GROUP_NAMES, Roots,
    SetupFault, SetupKind, TlsClock, Version,
};

/// The name of HTTP/2 in ALPN (RFC 9113 section 3.2).
pub(crate) const ALPN_HTTP2: &str = "h2";
/// Largest number of tickets that a thread keeps for each server. A ticket is used once, so this also limits how
/// many connections can resume at the same time.
const TICKETS_MAX: usize = 65_536;

/// The TLS options for all `https:` URLs.
#[derive(clap::Args, Clone, Debug)]
#[command(next_help_heading = "TLS (https:// URLs)")]
pub struct TlsOptions {
    /// Use only this TLS version [default: 1.3, or 1.2 if the server does not support 1.3]
    #[arg(long = "tls-version", value_name = "1.2|1.3", value_parser = parse_version)]
    version: Option<Version>,
    /// Cipher suites by IANA name, comma-separated, in order of preference
    #[arg(long = "tls-ciphers", value_name = "NAME[,NAME..]", value_delimiter = ',')]
    ciphers: Vec<String>,
    /// Key exchange groups, comma-separated, in order of preference: X25519MLKEM768, X25519, P-256, P-384
    #[arg(long = "tls-curves", value_name = "NAME[,NAME..]", value_delimiter = ',')]
    curves: Vec<String>,
    /// Application protocols to offer, comma-separated; `none` offers no protocol; --http2 offers h2 instead
    #[arg(
        long,
        value_name = "NAME[,NAME..]",
        value_delimiter = ',',
        default_value = "http/1.1",
        conflicts_with = "http2"
    )]
    alpn: Vec<String>,
    /// Server name to request and to verify [default: the URL's host]
    #[arg(long = "sni", value_name = "NAME")]
    server_name: Option<String>,
    /// Trust the CA certificates in this file (PEM) instead of the system's
    #[arg(long, value_name = "FILE")]
    ca: Option<PathBuf>,
    /// Accept any certificate for any name: the connection is encrypted but the server is not verified
    #[arg(short = 'k', long, visible_alias = "insecure")]
    accept_any_certificate: bool,
    /// Resume earlier sessions when connections are opened again
    #[arg(long = "tls-resumption", value_name = "on|off", default_value = "on", value_parser = parse_switch, action = clap::ArgAction::Set)]
    resume: bool,
    /// The run uses HTTP/2.
    #[arg(skip)]
    is_http2: bool,
}

impl Default for TlsOptions {
    fn default() -> Self {
        Self {
            version: None,
            ciphers: Vec::new(),
            curves: Vec::new(),
            alpn: vec!["http/1.1".to_owned()],
            server_name: None,
            ca: None,
            accept_any_certificate: false,
            resume: true,
            is_http2: false,
        }
    }
}

impl TlsOptions {
    /// The options of a comparison: TLS 1.3 with one cipher suite, any certificate, and resumption as given.
    pub(crate) fn of_comparison(resume: bool) -> Self {
        Self {
            version: Some(Version::Tls13),
            ciphers: vec!["TLS_AES_256_GCM_SHA384".to_owned()],
            curves: vec!["X25519".to_owned()],
            accept_any_certificate: true,
            resume,
            ..Self::default()
        }
    }

    /// Only the parts that the verification of the server's certificate needs.
    pub(crate) fn of_verification(
        ca: Option<PathBuf>,
        accept_any_certificate: bool,
        server_name: Option<String>,
    ) -> Self {
        Self { ca, accept_any_certificate, server_name, ..Self::default() }
    }

    /// The name that is requested from the server of `url`, and verified.
    ///
    /// # Errors
    /// A message for the operator: it is no name.
    pub(crate) fn name_for(&self, url: &Url) -> Result<String, String> {
        let name = self.server_name.as_deref().unwrap_or(url.host_name());
        match Connector::check_name(name) {
            Ok(_) => Ok(name.to_owned()),
            Err(_) => {
                Err(format!("`{name}` is not a valid TLS server name; give one with --sni NAME"))
            }
        }
    }

    /// The same options without --sni, for a server other than the one under load.
    #[must_use]
    pub fn without_name(&self) -> Self {
        Self { server_name: None, ..self.clone() }
    }

    /// The same options for HTTP/2: only h2 is offered.
    #[must_use]
    pub fn for_http2(&self) -> Self {
        Self { alpn: vec![ALPN_HTTP2.to_owned()], is_http2: true, ..self.clone() }
    }

    /// The plan of a thread's TLS layer for `authorities`; `None` if no authority uses TLS.
    ///
    /// # Errors
    /// A message for the operator.
    pub fn plan(&self, authorities: &[Url], connections: u32) -> Result<Option<TlsPlan>, String> {
        if !authorities.iter().any(|url| url.is_secure) {
            return Ok(None);
        }
        let (connector, clock) = self.connector(connections)?;
        let mut servers = Vec::new();
        for url in authorities {
            let name = match url.is_secure {
                true => self.name_for(url)?,
                false => url.host_name().to_owned(),
            };
            servers.push(ServerPlan { name, place: url.authority.clone() });
        }
        let pool = PoolPlan { name: String::new(), connector, servers };
        Ok(Some(TlsPlan { listeners: Vec::new(), pools: vec![Some(pool)], clock }))
    }

    /// The connector that begins sessions, and its clock.
    ///
    /// # Errors
    /// A message for the operator.
    pub(crate) fn connector(&self, connections: u32) -> Result<(Connector, TlsClock), String> {
        if self.ca.is_some() && self.accept_any_certificate {
            return Err("--ca FILE verifies the server and -k accepts any certificate: leave one of them out".to_owned());
        }
        let clock = TlsClock::default();
        clock.set(unix_seconds());
        let connector = Connector::new(&self.settings(connections)?, clock.clone())
            .map_err(|fault| self.in_words(&fault))?;
        Ok((connector, clock))
    }

    fn settings(&self, connections: u32) -> Result<ConnectorSettings, String> {
        let is_other = |name: &String| name.starts_with("h2") || name.starts_with("h3");
        if !self.is_http2 && self.alpn.iter().any(is_other) {
            return Err("--alpn: write http/1.1 or none; use --http2 for HTTP/2".to_owned());
        }
        let roots = match &self.ca {
            _ if self.accept_any_certificate => Roots::Unverified,
            Some(path) => Roots::Authorities(
                std::fs::read(path).map_err(|error| format!("--ca {}: {error}", path.display()))?,
            ),
            None => Roots::System(system_roots()),
        };
        Ok(ConnectorSettings {
            roots,
            version_min: self.version.unwrap_or(Version::Tls12),
            version_max: self.version.unwrap_or(Version::Tls13),
            ciphers: self.ciphers.clone(),
            groups: self.curves.clone(),
            alpn: self.alpn.iter().filter(|name| *name != "none").cloned().collect(),
            resume: self.resume,
            tickets_max: Some((connections as usize).min(TICKETS_MAX)),
            ..ConnectorSettings::default()
        })
    }

    fn in_words(&self, fault: &SetupFault) -> String {
        match fault.kind {
            SetupKind::CipherUnknown => {
                format!("--tls-ciphers: {fault}; allowed: {}", CIPHER_NAMES.join(", "))
            }
            SetupKind::GroupUnknown => {
                format!("--tls-curves: {fault}; allowed: {}", GROUP_NAMES.join(", "))
            }
            SetupKind::NoSystemRoots => {
                "the system's CA certificates were not found; give a file with --ca FILE".to_owned()
            }
            _ => match &self.ca {
                Some(path) => format!("--ca {}: {fault}", path.display()),
                None => format!("TLS: {fault}"),
            },
        }
    }
}

/// The negotiated version, cipher suite and ALPN protocol as text.
pub(crate) fn facts_in_words(facts: &Facts<'_>) -> String {
    let mut words = format!("{} {}", facts.version.name(), facts.cipher);
    if let Some(alpn) = facts.alpn {
        words.push_str(" ALPN ");
        words.push_str(&String::from_utf8_lossy(alpn));
    }
    words
}

/// Why TLS with a server failed, and how to fix it.
pub(crate) fn fault_in_words(fault: Fault) -> String {
    let help = match fault {
        Fault::NotTls | Fault::PlainHttp => {
            return "the server did not respond with TLS; if the port expects plain HTTP, use http://"
                .to_owned();
        }
        Fault::Certificate(CertificateFault::WrongName) => {
            "; give the certificate's name with --sni NAME, or use --accept-any-certificate"
        }
        Fault::Certificate(CertificateFault::UnknownIssuer) => {
            "; give the issuer's certificate with --ca FILE, or use --accept-any-certificate"
        }
        Fault::Certificate(_) => "; --accept-any-certificate accepts the certificate anyway",
        Fault::Incompatible | Fault::Alert(40 | 70) => {
            "; check --tls-version, --tls-ciphers and --tls-curves"
        }
        Fault::NoProtocol | Fault::Alert(120) => {
            "; check --alpn; with --http2 the server must support HTTP/2"
        }
        _ => "",
    };
    format!("{}{help}", fault.text())
}

fn parse_version(text: &str) -> Result<Version, String> {
    match text {
        "1.2" => Ok(Version::Tls12),
        "1.3" => Ok(Version::Tls13),
        _ => Err("write 1.2 or 1.3".to_owned()),
    }
}

fn parse_switch(text: &str) -> Result<bool, String> {
    match text {
        "on" => Ok(true),
        "off" => Ok(false),
        _ => Err("write on or off".to_owned()),
    }
}

fn unix_seconds() -> u64 {
    std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)
        .map_or(0, |since| since.as_secs())
}
