#!/usr/bin/env python3
"""Runs the conversation scripts of tlsfuzzer against Tidegate and prints the results as Markdown.

In: a checkout of tlsfuzzer, the binary, a folder with the certificates that tlsfuzzer.sh makes.
Out: a table of the scripts, the reasons of failures, the scripts that do not apply. Exit code 1 if a conversation
failed for a reason that is not listed here for its script, or if a script of the checkout is not listed at all.
With ALL in the environment, the scripts run all their conversations instead of a selection.
Limits: SCRIPT_SECONDS_MAX for a script.
"""

import collections
import os
import re
import subprocess
import sys
import textwrap
import threading

# The longest time that a script may take.
SCRIPT_SECONDS_MAX = 300

# Why conversations fail, by a name that the table uses.
REASONS = {
    "alert": (
        "rustls rejects the message with a fatal alert other than the one that the script expects. The connection "
        "ends either way (RFC 8446 section 6.2)"
    ),
    "algorithms": (
        "the conversation needs a cipher suite, signature scheme or group that rustls does not implement: key "
        "exchange with RSA or finite-field groups, CBC, CCM, SHA-1 (also by default, without signature_algorithms), "
        "X448, P-521 (RFC 9325 sections 4.1 and 4.2, RFC 9155, RFC 8446 section 9.1)"
    ),
    "authorities": "the CertificateRequest names the authorities (RFC 8446 section 4.2.4); the script expects no names",
    "ccs": (
        "each further change_cipher_spec of a TLS 1.3 handshake is dropped (RFC 8446 section 5), up to a limit of "
        "rustls; the script expects an alert"
    ),
    "certificate": (
        "the listener's key supports none of the signature schemes offered. The alert follows ServerHello, encrypted; "
        "the script expects it instead of ServerHello (RFC 8446 section 4.4.2.2)"
    ),
    "early-data": (
        "rejected early data is skipped up to 16 KiB (RFC 8446 section 4.2.10: a limit of the server); Tidegate never "
        "offers early data, so only tickets of other servers cause it"
    ),
    "fallback": (
        "rustls does not implement TLS_FALLBACK_SCSV (RFC 7507). The random value of a TLS 1.2 ServerHello shows a "
        "downgrade to clients of TLS 1.3 (RFC 8446 section 4.1.3), and older versions are refused"
    ),
    "known": "the list of unknown values contains one that is known by now: the group X25519MLKEM768, an extension",
    "large": (
        "handshake messages over 64 KiB are rejected (decode_error): a bound of memory for each connection. If the "
        "client is still sending, the reset may overtake the alert"
    ),
    "lenient": (
        "rustls ignores the deviation and continues: other values of legacy_version, a second ClientHello with its "
        "extensions in another order, obsolete groups next to known ones (RFC 8446 sections 4.1.2 and 4.2.7); a "
        "renegotiation_info that is not empty, although RFC 5746 section 3.6 demands an alert (there is no "
        "renegotiation that it could be for)"
    ),
    "name": "an unknown name gets the first certificate (RFC 6066 section 3); `strict-sni = true` rejects it",
    "names": "rustls rejects a list of server names with types other than host_name; RFC 6066 defines no other type",
    "points": (
        "rustls does not send ec_point_formats: without it only uncompressed points are allowed, and no others are "
        "used (RFC 8422 section 5.1.2)"
    ),
    "psk": "sessions are resumed with a new key exchange only: psk_ke has no forward secrecy (RFC 8446 section 2.2)",
    "renegotiation": "renegotiation is refused with the warning no_renegotiation (RFC 5246 section 7.2.2)",
    "schemes": "the script expects the signature schemes of another library in CertificateRequest",
    "session-id": (
        "sessions are resumed by tickets, not by session IDs: no session cache is kept (RFC 5246 section 7.4.1.3); "
        "the server answers with a full handshake"
    ),
    "silent": (
        "a protected record between the parts of a handshake message: rustls closes without an alert, and records "
        "are protected already, so Tidegate cannot add one (RFC 8446 section 6.2: should)"
    ),
    "sslv2": "a ClientHello of SSL 2.0 is not a TLS record: the connection is closed without an alert (RFC 6176)",
    "tickets": "tickets are sent only to clients that offer psk_key_exchange_modes (RFC 8446 section 4.2.9)",
    "updates": "KeyUpdates get one answer together, before the next data that is sent (RFC 8446 section 4.6.3)",
    "version": "TLS 1.1 and older are refused (RFC 8996)",
}

KEX = (
    "all conversations, or those that show that the server works, need suites or groups that rustls does not implement "
    "(RFC 9325 sections 4.1 and 4.2), or a ClientHello without the extensions that its suites require"
)
CBC = "tests CBC suites or their padding; only AEAD suites are implemented (RFC 9325 section 4.2)"
EXTENSION = "tests an optional extension or feature that is not implemented"
KEYS = "needs a type of key or certificate that rustls does not support"
TOOL = "needs a server that echoes, that renegotiates or starts key updates on request, or that has no TLS 1.3"
TIMING = "measures timing over hours with a packet capture, of suites that are not implemented, or of ECDSA over P-256"

# Scripts that do not apply.
NOT_RUN = {
    **dict.fromkeys(
        """bleichenbacher-workaround clienthello-md5 dhe-key-share-random dhe-no-shared-secret-padding
        dhe-rsa-key-exchange dhe-rsa-key-exchange-signatures dhe-rsa-key-exchange-with-bad-messages
        dsa-in-certificate-verify dsa-sig-flexibility ecdhe-rsa-key-exchange
        ecdhe-rsa-key-exchange-with-bad-messages empty-extensions export-ciphers-rejected extensions
        ffdhe-expected-params ffdhe-negotiation invalid-rsa-key-exchange-messages sslv2-force-cipher
        sslv2-force-cipher-3des sslv2-force-cipher-non3des sslv2-force-export-cipher
        tls13-dhe-shared-secret-padding tls13-ecdhe-brainpool-curves tls13-ffdhe-groups tls13-ffdhe-sanity
        truncating-of-kRSA-client-key-exchange unsupported-curve-fallback aesccm""".split(),
        KEX,
    ),
    **dict.fromkeys(
        """SSLv3-padding atypical-padding cve-2016-2107 encrypt-then-mac encrypt-then-mac-renegotiation fuzzed-MAC
        fuzzed-padding fuzzed-plaintext""".split(),
        CBC,
    ),
    **dict.fromkeys(
        """heartbeat ocsp-stapling record-size-limit tls13-certificate-compression
        tls13-client-certificate-compression tls13-post-handshake-auth tls13-psk_dhe_ke tls13-psk_ke""".split(),
        EXTENSION,
    ),
    **dict.fromkeys(
        """eddsa-in-certificate-verify rsa-pss-sigs-on-certificate-verify tls13-ecdsa-brainpool-in-certificate-verify
        tls13-eddsa tls13-eddsa-in-certificate-verify tls13-mldsa-in-certificate-verify
        tls13-rsapss-signatures""".split(),
        KEYS,
    ),
    **dict.fromkeys(
        """lengths renegotiation-disabled-client-cert tls13-keyupdate-from-server tls13-lengths
        tls13-non-support""".split(),
        TOOL,
    ),
    **dict.fromkeys(
        "bleichenbacher-timing-marvin bleichenbacher-timing-pregenerate lucky13 tls13-minerva".split(), TIMING
    ),
}

D, GCM = ["-d"], ["-C", "{gcm}"]
CLIENT = ["-k", "{folder}/client.key", "-c", "{folder}/client.pem"]
CLIENT_EC = ["-k", "{folder}/client-ec.key", "-c", "{folder}/client-ec.pem"]
# Old scripts that offer only RSA key exchange: see SHIM.
ECDHE = ["ecdhe"]
R, E, BOTH, AUTH, NEW = ["rsa"], ["ecdsa"], ["rsa", "ecdsa"], ["client"], ["tls13"]

# Reasons with the conversations that they explain: a pattern on "conversation: error".
ALERT = ("alert", r"Expected alert description")
ALGORITHMS = ("algorithms", r"handshake_failure\)$")
CERTIFICATE = ("certificate", r"Handshake\(server_hello\)$|handshake_failure\)$")
LARGE = ("large", r"Alert\(fatal, decode_error\)$")
POINTS = ("points", r"ec_point_formats$")
RENEGOTIATION = ("renegotiation", r"no_renegotiation")
SCHEMES = ("schemes", r"Unexpected signature algorithms")
SESSION = ("session-id", r"Handshake\(certificate\)$")
SHA1 = ("algorithms", r"sha-?1\b.*: .*(illegal_parameter|handshake_failure)\)$")
SSLV2 = ("sslv2", r"Unexpected closure from peer")
VERSION = ("version", r"protocol_version\)$|\(3, [012]\)|TLSv1\.[01]")

# The scripts, the listeners that they talk to, their options, and the failures that are expected of them.
RUNS = [
    ("TLSv1_2-rejected-without-TLSv1_2", NEW, ECDHE, [VERSION]),
    ("aes-gcm-nonces", R, D, []),
    ("alpn-negotiation", R, D, [RENEGOTIATION, ("session-id", r"^resumption with")]),
    ("ccs", BOTH, GCM, [ALERT]),
    ("certificate-malformed", AUTH, CLIENT + GCM, [ALERT]),
    ("certificate-request", AUTH, CLIENT + GCM, [SCHEMES]),
    ("certificate-verify", AUTH, CLIENT + GCM, []),
    ("certificate-verify-malformed", AUTH, CLIENT + GCM, []),
    ("certificate-verify-malformed-sig", AUTH, CLIENT + D, [ALERT, SHA1]),
    ("chacha20", R, ["--extra-exts", "-n", "0"], [("version", r"in TLS1\.1: .*protocol_version")]),
    ("client-compatibility", R, D, [SSLV2, ALGORITHMS]),
    ("client-hello-max-size", R, D, [LARGE]),
    ("connection-abort", BOTH, GCM, []),
    ("conversation", BOTH, GCM, []),
    ("cve-2004-0079", BOTH, GCM, []),
    ("cve-2016-6309", BOTH, GCM, []),
    ("cve-2016-7054", BOTH, ["-C", "{chacha}"], []),
    ("downgrade-protection", R, D + ["--server-max-protocol", "TLSv1.3"], [VERSION]),
    ("early-application-data", BOTH, GCM, []),
    ("ecdhe-padded-shared-secret", R, ECDHE + ["-n", "0"], [SSLV2, VERSION, POINTS, ALGORITHMS]),
    ("ecdhe-rsa-key-share-random", R, ECDHE, [SSLV2, VERSION, POINTS, ALGORITHMS]),
    ("ecdsa-in-certificate-verify", AUTH, CLIENT_EC, [ALERT, SHA1, ("algorithms", r"sha224.*illegal_parameter")]),
    ("ecdsa-sig-flexibility", E, GCM, [ALGORITHMS]),
    (
        "extended-master-secret-extension",
        R,
        D,
        [RENEGOTIATION, VERSION, SESSION, ("algorithms", r"w/DHE"), ("session-id", r"resume without extension")],
    ),
    ("extended-master-secret-extension-with-client-cert", AUTH, CLIENT + D, [SESSION]),
    (
        "fallback-scsv",
        R,
        D + ["--tls-1.3", "--min-support", "TLSv1.2"],
        [("fallback", r"^FALLBACK.*server_hello\)$"), ALERT],
    ),
    ("fuzzed-ciphertext", BOTH, GCM, []),
    ("fuzzed-finished", BOTH, ECDHE, []),
    ("hello-request-by-client", BOTH, GCM, []),
    ("interleaved-CKE-with-CCS", BOTH, GCM, []),
    (
        "interleaved-application-data-and-fragmented-handshakes-in-renegotiation",
        BOTH,
        GCM,
        [RENEGOTIATION, ("silent", r"closure from peer")],
    ),
    ("interleaved-application-data-in-renegotiation", BOTH, GCM, [RENEGOTIATION]),
    ("invalid-cipher-suites", BOTH, ECDHE, []),
    ("invalid-client-hello", BOTH, ECDHE, [ALERT]),
    ("invalid-client-hello-w-record-overflow", BOTH, GCM, [ALERT]),
    ("invalid-compression-methods", BOTH, GCM, []),
    ("invalid-content-type", BOTH, GCM, []),
    ("invalid-server-name-extension", R, D, [ALERT, ("name", r"^incorrect SNI"), ("names", r"host_name last")]),
    ("invalid-server-name-extension-resumption", R, D, [ALGORITHMS]),
    ("invalid-session-id", BOTH, ECDHE, []),
    ("invalid-version", BOTH, ECDHE, []),
    ("large-hello", R, D, [("known", r"^multiple extensions"), LARGE]),
    ("large-number-of-extensions", R, D, [LARGE]),
    ("legacy-renegotiation", R, D, [RENEGOTIATION, ("lenient", r"^non-empty initial")]),
    ("message-duplication", BOTH, ECDHE, [ALERT]),
    ("message-skipping", R, D, []),
    ("no-heartbeat", R, D, [ALERT]),
    ("no-mlkem-in-old-tls", BOTH, GCM, []),
    ("openssl-3712", BOTH, ECDHE, [RENEGOTIATION]),
    ("point-extension", BOTH, GCM, [POINTS]),
    ("record-layer-fragmentation", BOTH, GCM, [LARGE]),
    ("renegotiation-changed-clienthello", BOTH, D, [RENEGOTIATION]),
    ("renegotiation-disabled", BOTH, GCM, []),
    (
        "resumption-with-wrong-ciphers",
        BOTH,
        D,
        [ALERT, ("session-id", r"session ID resume|from old CH but not selected")],
    ),
    ("rsa-sigs-on-certificate-verify", AUTH, CLIENT + D, [SHA1]),
    ("serverhello-random", BOTH, ECDHE, [SSLV2, VERSION]),
    ("session-ticket-resumption", BOTH, D, [RENEGOTIATION]),
    ("sessionID-resumption", BOTH, D, [SESSION]),
    ("sig-algs", R, [], [("certificate", r"^rsa_pss_pss")]),
    ("sig-algs-renegotiation-resumption", BOTH, D, [RENEGOTIATION, ALGORITHMS]),
    ("signature-algorithms", R, ["--no-sha1"], [LARGE]),
    ("signature-algorithms", E, ["--no-sha1", "--ecdsa"], [LARGE]),
    ("ssl-death-alert", R, D, []),
    ("sslv2-connection", BOTH, [], [SSLV2]),
    ("sslv2hello-protocol", R, D, [SSLV2]),
    ("tls13-0rtt-garbage", R, D, [("early-data", r"bad_record_mac\)$")]),
    ("tls13-ccs", R, [], []),
    ("tls13-certificate-request", AUTH, CLIENT, [SCHEMES, ("authorities", r"unexpected extension\(s\): 47$")]),
    ("tls13-certificate-verify", AUTH, CLIENT, [SCHEMES]),
    ("tls13-connection-abort", BOTH, [], [("tickets", r"After NewSessionTicket")]),
    ("tls13-conversation", BOTH, [], []),
    ("tls13-count-tickets", R, [], []),
    ("tls13-crfg-curves", R, [], [("algorithms", r"x448"), ALERT]),
    ("tls13-ecdhe-curves", BOTH, [], [("algorithms", r"secp521r1|x448")]),
    ("tls13-ecdsa-in-certificate-verify", AUTH, CLIENT_EC, [SCHEMES, ALERT]),
    ("tls13-ecdsa-support", E, [], [CERTIFICATE]),
    ("tls13-empty-alert", R, [], [ALERT]),
    ("tls13-finished", R, [], [ALERT, ("large", r"^padding.*\d{6}.*Unexpected closure")]),
    ("tls13-finished-plaintext", R, [], [ALERT]),
    ("tls13-hrr", R, [], []),
    ("tls13-invalid-ciphers", R, [], []),
    ("tls13-keyshare-omitted", R, [], [ALERT]),
    (
        "tls13-keyupdate",
        R,
        [],
        [("silent", r"appdata between: Unexpected closure"), ("updates", r"^multiple KeyUpdate|^app data split.*Timeout")],
    ),
    ("tls13-large-number-of-extensions", R, [], [("known", r"decode_error\)$")]),
    ("tls13-legacy-version", R, [], [("lenient", r"^version \(.*server_hello\)$")]),
    ("tls13-mlkem", R, ["--kems", "x25519mlkem768"], []),
    ("tls13-multiple-ccs-messages", BOTH, [], [("ccs", r"CCS.*Timeout")]),
    ("tls13-no-unknown-groups", BOTH, [], [("known", r"4356 and 4611")]),
    ("tls13-nociphers", R, [], []),
    (
        "tls13-obsolete-curves",
        BOTH,
        ["--relaxed"],
        [("lenient", r"hello_retry_request\)$"), ("algorithms", r"^(x448|secp521r1)"), ALERT],
    ),
    ("tls13-pkcs-signature", R, [], [CERTIFICATE]),
    ("tls13-record-layer-limits", R, [], [ALERT]),
    ("tls13-record-padding", R, [], []),
    ("tls13-rsa-signatures", R, [], [("certificate", r"rsa_pss_pss")]),
    ("tls13-serverhello-random", R, [], [ALGORITHMS]),
    ("tls13-session-resumption", R, D, [("psk", r"PSK_ONLY")]),
    ("tls13-shuffled-extentions", R, [], [("lenient", r"^HRR.*server_hello\)$"), ("known", r"decode_error\)$")]),
    ("tls13-signature-algorithms", R, [], [("certificate", r"only (undefined|legacy)"), LARGE]),
    ("tls13-symetric-ciphers", R, [], [("algorithms", r"CCM")]),
    ("tls13-unencrypted-alert", BOTH, [], []),
    ("tls13-unrecognised-groups", R, [], [ALGORITHMS]),
    ("tls13-version-negotiation", R, GCM, [SSLV2, VERSION]),
    ("tls13-zero-content-type", BOTH, [], []),
    ("tls13-zero-length-data", R, [], []),
    ("truncating-of-client-hello", BOTH, GCM, []),
    ("truncating-of-finished", BOTH, ECDHE, []),
    ("version-numbers", BOTH, GCM, []),
    ("x25519", R, ["--no-default-group"], [ALGORITHMS, ALERT]),
    ("zero-length-data", BOTH, GCM, []),
]

# -- running ----------------------------------------------------------------------------------------------------------

# Scripts choose some of their conversations at random: a fixed seed makes them choose the same ones in each run.
# Old scripts offer suites that rustls does not have. The CBC suites of their option -d are replaced by GCM suites.
# Scripts without that option offer only RSA key exchange, in a ClientHello without extensions: with a first argument
# (the type of the certificate's key) the suite becomes one with ECDHE, and what it needs is added to the conversation.
SHIM = """
import random, runpy, sys
random.seed(0)
from tlslite.constants import CipherSuite, ExtensionType, GroupName
from tlslite.extensions import SignatureAlgorithmsExtension, SupportedGroupsExtension
for key in ("RSA", "ECDSA"):
    for bits, digest in (("128", "SHA256"), ("256", "SHA384")):
        gcm = getattr(CipherSuite, f"TLS_ECDHE_{key}_WITH_AES_{bits}_GCM_{digest}")
        for mac in ("SHA", digest):
            name = f"TLS_ECDHE_{key}_WITH_AES_{bits}_CBC_{mac}"
            if hasattr(CipherSuite, name):
                setattr(CipherSuite, name, gcm)
key = sys.argv.pop(1)
sys.argv = sys.argv[1:]
if key:
    from tlsfuzzer import expect, helpers, messages, runner
    old = CipherSuite.TLS_RSA_WITH_AES_128_CBC_SHA
    new = getattr(CipherSuite, f"TLS_ECDHE_{key}_WITH_AES_128_GCM_SHA256")
    def modernize(node, seen):
        while node is not None and id(node) not in seen:
            seen.add(id(node))
            if isinstance(node, messages.ClientHelloGenerator) and {old, new} & set(node.ciphers or []):
                node.ciphers = [new if suite == old else suite for suite in node.ciphers]
                extensions = node.extensions if node.extensions is not None else {}
                extensions.setdefault(
                    ExtensionType.supported_groups, SupportedGroupsExtension().create([GroupName.secp256r1]))
                extensions.setdefault(
                    ExtensionType.signature_algorithms, SignatureAlgorithmsExtension().create(helpers.SIG_ALL))
                node.extensions = extensions
            if isinstance(node, expect.ExpectCertificate) and isinstance(node.child, expect.ExpectServerHelloDone):
                done, node.child = node.child, None
                exchange = expect.ExpectServerKeyExchange()
                node.add_child(exchange)
                exchange.add_child(done)
            for other in [node.next_sibling, *node.get_all_siblings()]:
                modernize(other, seen)
            node = node.child
    begin = runner.Runner.__init__
    def begin_modernized(self, conversation):
        modernize(conversation, set())
        begin(self, conversation)
    runner.Runner.__init__ = begin_modernized
runpy.run_path(sys.argv[0], run_name="__main__")
"""

LISTENERS = {
    "ecdsa": '[{ cert = "ecdsa.pem", key = "ecdsa.key" }]',
    "rsa": '[{ cert = "rsa.pem", key = "rsa.key" }]',
    "client": '[{ cert = "rsa.pem", key = "rsa.key" }], client-auth = "optional", client-ca = "clients.pem"',
    "tls13": '[{ cert = "rsa.pem", key = "rsa.key" }], min-version = "1.3"',
}


class Server:
    """Tidegate with one listener for each entry of LISTENERS."""

    def __init__(self, binary, folder):
        text = "[server]\nworkers = 1\n"
        for name, tls in LISTENERS.items():
            text += f'[[listener]]\nname = "{name}"\nbind = "127.0.0.1:0"\ntls = {{ certificates = {tls} }}\n'
        text += '[[route]]\nrespond = { body = "hello" }\n'
        file = os.path.join(folder, "tidegate.toml")
        with open(file, "w") as config:
            config.write(text)
        self.process = subprocess.Popen([binary, "run", "-c", file], cwd=folder, stderr=subprocess.PIPE, text=True)
        self.ports = {}
        for line in self.process.stderr:
            found = re.search(r"listening on https://127\.0\.0\.1:(\d+)/ \((\w+)\)", line)
            if found:
                self.ports[found[2]] = found[1]
            if len(self.ports) == len(LISTENERS):
                break
        else:
            sys.exit("tlsfuzzer.py: tidegate did not start")
        # The rest of the log is not used, but must be read.
        threading.Thread(target=self.process.stderr.read, daemon=True).start()

    def stop(self):
        """Stops the server; whether it ran until then and stopped in order."""
        alive = self.process.poll() is None
        self.process.terminate()
        return self.process.wait(timeout=60) == 0 and alive


def parse(output):
    """The number of conversations of a script that passed, and the error of each one that failed."""
    passed = re.search(r"^PASS: (\d+)", output, flags=re.M)
    failed = collections.OrderedDict()
    parts = re.split(r"^(.*?) ?\.\.\.(?: .*)?$", output, flags=re.M)
    for name, text in zip(parts[1::2], parts[2::2]):
        if "Error while processing" in text:
            errors = re.findall(r"^[\w.]*(?:Error|Exception|Alert)\b.*", text, flags=re.M)
            failed[name] = errors[-1].removeprefix("AssertionError: ") if errors else "unknown error"
    if not failed and re.search(r"^FAIL: [1-9]", output, flags=re.M):
        failed["the script"] = "failed without an error of a conversation"
    return int(passed[1]) if passed else 0, failed


def knows_number(checkout, script):
    """Whether a script has the option that sets the number of conversations that it chooses."""
    app = os.path.join(checkout, "tlsfuzzer", "_apps", f"test_{script.replace('-', '_')}.py")
    with open(app) as file:
        return bool(re.search(r'getopt\(argv, "[^"]*n:', file.read()))


def run_script(checkout, folder, ports, script, listener, options):
    """The passed conversations and the failed ones of one script, run against one listener."""
    path = os.path.join(checkout, "scripts", f"test-{script}.py")
    key = "ECDSA" if listener == "ecdsa" else "RSA"
    is_old = options[:1] == ECDHE
    options = options[1:] if is_old else options
    gcm, chacha = (f"TLS_ECDHE_{key}_WITH_{name}_SHA256" for name in ("AES_128_GCM", "CHACHA20_POLY1305"))
    options = [option.format(gcm=gcm, chacha=chacha, folder=folder) for option in options]
    if "ALL" in os.environ and knows_number(checkout, script):
        options += ["-n", "0"]
    command = [sys.executable, "-c", SHIM, key if is_old else "", path, "-h", "127.0.0.1", "-p", ports[listener], *options]
    environment = dict(os.environ, PYTHONPATH=checkout, PYTHONHASHSEED="0")
    try:
        done = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True, timeout=SCRIPT_SECONDS_MAX
        )
    except subprocess.TimeoutExpired:
        return 0, {"the script": f"not done after {SCRIPT_SECONDS_MAX} s"}
    passed, failed = parse(done.stdout)
    if "TOTAL:" not in done.stdout:
        failed["the script"] = (done.stderr.strip().splitlines() or ["no output"])[-1]
    return passed, failed


def explain(failed, reasons):
    """Counts the failed conversations by reason; lists those without one."""
    counts, unexplained = collections.Counter(), []
    for name, error in failed.items():
        line = f"{name}: {error}"
        reason = next((reason for reason, pattern in reasons if re.search(pattern, line)), None)
        if reason:
            counts[reason] += 1
        else:
            unexplained.append(line)
    return counts, unexplained


def main():
    checkout, binary, folder, *wanted = sys.argv[1:]
    names = os.listdir(os.path.join(checkout, "scripts"))
    scripts = {found[1] for name in names if (found := re.match(r"test-(.*)\.py$", name))}
    listed = {run[0] for run in RUNS} | set(NOT_RUN)
    unexplained = [f"{script}: not listed" for script in sorted(scripts - listed)]
    server = Server(binary, folder)
    rows, used, passed_all, failed_all = [], set(), 0, 0
    try:
        for script, listeners, options, reasons in RUNS:
            if wanted and not any(word in script for word in wanted):
                continue
            for listener in listeners:
                passed, failed = run_script(checkout, folder, server.ports, script, listener, options)
                counts, rest = explain(failed, reasons)
                unexplained += [f"{script} ({listener}): {line}" for line in rest]
                used |= set(counts)
                passed_all, failed_all = passed_all + passed, failed_all + len(failed)
                why = ", ".join(f"{count} {reason}" for reason, count in sorted(counts.items()))
                why += f", **{len(rest)} not listed**" if rest else ""
                shown = " ".join(options).replace("{folder}/", "").replace("{gcm}", "GCM").replace("{chacha}", "CHACHA20")
                rows.append(f"| {script} | {listener} | {shown} | {passed} | {why.strip(', ')} |")
                print(rows[-1], file=sys.stderr, flush=True)
    finally:
        if not server.stop():
            unexplained.append("tidegate did not run until the end")
    print("| script | listener | options | passed | failed |\n|---|---|---|---|---|")
    print("\n".join(rows))
    print(f"\n{passed_all} conversations passed, {failed_all} failed. Why they failed:\n")
    for reason in sorted(used):
        print(textwrap.fill(f"- **{reason}**: {REASONS[reason]}.", 110, subsequent_indent="  ", break_on_hyphens=False))
    print("\nScripts that do not apply:\n\n| script | why |\n|---|---|")
    by_reason = collections.defaultdict(list)
    for script, why in NOT_RUN.items():
        by_reason[why].append(script)
    print("\n".join(f"| {', '.join(sorted(scripts))} | {why} |" for why, scripts in by_reason.items()))
    for line in unexplained:
        print(f"tlsfuzzer.py: {line}", file=sys.stderr)
    return 1 if unexplained else 0


if __name__ == "__main__":
    sys.exit(main())
