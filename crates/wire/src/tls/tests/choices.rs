//! Certificates that the user of an acceptor chooses.
//! In: choices. Out: the certificates that clients get.

use tidegate_base::CertificateChoice;

use super::*;

#[test]
fn user_chooses_the_certificate_of_a_connection() {
    let authority = Authority::new("authority");
    let settings = AcceptorSettings {
        certificates: vec![
            authority.server(&["first.example"]),
            authority.server(&["*.a.example"]),
        ],
        asks_for_choice: true,
        ..AcceptorSettings::default()
    };
    let acceptor = acceptor(&settings);
    assert!(acceptor.asks_for_choice() && acceptor.with_own_refusals().asks_for_choice());
    let outcome = |choice: CertificateChoice| {
        // A connector of its own: a resumed session would show no certificate.
        let connector = Connector::new(&connector(&authority), clock()).unwrap();
        let client = connector.connect("x.a.example").unwrap();
        let mut pair = Pair::new(client, acceptor.accept_with(choice).unwrap());
        pair.run(1 << 20);
        (pair.client.fault, pair.server.fault)
    };
    let named = |name: &str| CertificateChoice::Named(name.into());
    for choice in [CertificateChoice::Requested, named("Y.a.example"), CertificateChoice::Index(1)]
    {
        assert_eq!(outcome(choice.clone()), (None, None), "{choice:?}");
    }
    let wrong = Some(Fault::Certificate(CertificateFault::WrongName));
    for choice in [named("first.example"), CertificateChoice::Index(0)] {
        assert_eq!(outcome(choice.clone()).0, wrong, "{choice:?}");
    }
    for choice in [CertificateChoice::Refused, CertificateChoice::Index(2)] {
        assert_eq!(outcome(choice.clone()).1, Some(Fault::NameUnknown), "{choice:?}");
    }
    let covers = |name: &str| acceptor.certificates().iter().map(|own| own.covers(name)).collect();
    for (name, covered) in [
        ("first.example", [true, false]),
        ("FIRST.example.", [true, false]),
        ("z.A.example", [false, true]),
        ("a.example", [false, false]),
        ("y.z.a.example", [false, false]),
        ("", [false, false]),
    ] {
        let found: Vec<bool> = covers(name);
        assert_eq!(found, covered, "{name}");
    }
}
