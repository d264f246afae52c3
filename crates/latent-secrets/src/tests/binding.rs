//! A handle comes only after purpose, tenant, provider, protocol, server name and port were all as expected.

use super::*;
use crate::{BindError, BindMismatch, BusBinding, SecretProtocol, SecretPurpose};

fn stored_with(change: impl FnOnce(&mut NewSecret<'_>)) -> Place {
    let (place, name, binding) = (Place::empty(), name(), binding());
    let mut new = NewSecret::tls(&name, &binding, VALUE, None);
    change(&mut new);
    place.store().put(new, NOW).unwrap();
    place
}

fn bound_as(place: &Place, change: impl FnOnce(&mut TlsBinding)) -> Result<(), BindError> {
    let mut expected = binding();
    change(&mut expected);
    place.store().bind_tls_credential(&name(), &expected, NOW).map(drop)
}

fn mismatch(mismatch: BindMismatch) -> Result<(), BindError> {
    Err(BindError::Mismatch { name: name(), mismatch })
}

#[test]
fn what_is_as_expected_is_bound_and_resolved() {
    let place = Place::with_secret();
    assert_eq!(bound_as(&place, |_| {}), Ok(()));
    assert_eq!(bound_as(&place, |expected| expected.server_name = "NATS.example.NET".into()), Ok(()));
    assert_eq!(place.value(), VALUE);
}

#[test]
fn another_purpose_is_refused() {
    let expected = SecretPurpose::TlsProviderCredential;
    for stored in [SecretPurpose::BusCredential, SecretPurpose::HttpCredential, SecretPurpose::GuestReadable] {
        let place = stored_with(|new| new.purpose = stored);
        assert_eq!(bound_as(&place, |_| {}), mismatch(BindMismatch::Purpose { stored, expected }));
    }
}

#[test]
fn a_node_s_own_credential_is_shown_for_its_server_alone_and_a_provider_s_never_in_its_stead() {
    let (place, name) = (Place::empty(), name());
    let bus = |server_name: &str, port| BusBinding::new(server_name, port).unwrap();
    place.store().put(NewSecret::bus(&name, &bus("Nats.example.net", 4222), VALUE, None), NOW).unwrap();
    let resolved = |binding: &BusBinding| place.store().resolve_bus_credential(&name, binding, NOW).map(|secret| secret.value().to_vec());
    assert_eq!(resolved(&bus("nats.example.net", 4222)).as_deref(), Ok(VALUE));
    let (stored, expected) = ("nats.example.net".to_owned(), "other.example.net".to_owned());
    let refused = |mismatch| Err(BindError::Mismatch { name: name.clone(), mismatch });
    assert_eq!(resolved(&bus("other.example.net", 4222)), refused(BindMismatch::ServerName { stored, expected }));
    assert_eq!(resolved(&bus("nats.example.net", 4223)), refused(BindMismatch::Port { stored: 4222, expected: 4223 }));
    let (stored, expected) = (SecretPurpose::TlsProviderCredential, SecretPurpose::BusCredential);
    let provider_s = Place::with_secret();
    let shown = provider_s.store().resolve_bus_credential(&name, &bus("nats.example.net", 4222), NOW).map(drop);
    assert_eq!(shown, refused(BindMismatch::Purpose { stored, expected }).map(|_: Vec<u8>| ()));
}

#[test]
fn another_tenant_is_refused() {
    let expected = TenantId::parse("acme2").unwrap();
    let refused = bound_as(&Place::with_secret(), |binding| binding.tenant = expected.clone());
    assert_eq!(refused, mismatch(BindMismatch::Tenant { stored: binding().tenant, expected }));
}

#[test]
fn another_provider_is_refused() {
    let expected = ProviderId::parse("broker.eu").unwrap();
    let refused = bound_as(&Place::with_secret(), |binding| binding.provider = expected.clone());
    assert_eq!(refused, mismatch(BindMismatch::Provider { stored: binding().provider, expected }));
}

#[test]
fn another_protocol_is_refused() {
    let stored = SecretProtocol::Http;
    let place = stored_with(|new| new.protocol = stored);
    assert_eq!(bound_as(&place, |_| {}), mismatch(BindMismatch::Protocol { stored }));
}

#[test]
fn another_server_name_is_refused() {
    for expected in ["nats.example.net.", "example.net", "nats.example.org", "", "*.example.net"] {
        let refused = bound_as(&Place::with_secret(), |binding| binding.server_name = expected.into());
        let expected = expected.to_owned();
        assert_eq!(refused, mismatch(BindMismatch::ServerName { stored: binding().server_name, expected }));
    }
}

#[test]
fn another_port_is_refused() {
    for expected in [0, 4221, 4223, u16::MAX] {
        let refused = bound_as(&Place::with_secret(), |binding| binding.port = expected);
        assert_eq!(refused, mismatch(BindMismatch::Port { stored: 4222, expected }));
    }
}

#[test]
fn what_is_not_there_is_not_bound_and_what_is_expired_or_revoked_is_bound_and_not_resolved() {
    let place = Place::empty();
    assert_eq!(bound_as(&place, |_| {}), Err(BindError::Missing { name: name() }));
    place.store().put(NewSecret::tls(&name(), &binding(), VALUE, Some(LATER)), NOW).unwrap();
    let expired = place.store().bind_tls_credential(&name(), &binding(), LATER).unwrap();
    assert_eq!(expired.resolve(LATER).map(drop), Err(BindError::Expired { name: name() }));
    place.store().revoke(&name(), NOW).unwrap();
    let revoked = place.store().bind_tls_credential(&name(), &binding(), NOW).unwrap();
    assert_eq!(revoked.resolve(NOW).map(drop), Err(BindError::Revoked { name: name() }));
    // A successor stored under the name is what both resolve.
    place.store().put(NewSecret::tls(&name(), &binding(), VALUE, None), NOW).unwrap();
    assert!(expired.resolve(LATER).is_ok() && revoked.resolve(LATER).is_ok());
}

#[test]
fn stores_and_handles_go_from_thread_to_thread() {
    const fn shared<T: Send + Sync>() {}
    const { shared::<LocalSecretStore>() };
    const { shared::<crate::TlsProviderCredential>() };
    const { shared::<crate::ResolvedSecret>() };
    const { shared::<crate::Stamp>() };
}

#[test]
fn an_open_handle_does_not_follow_its_name_to_another_owner() {
    let place = Place::with_secret();
    let handle = place.store().bind_tls_credential(&name(), &binding(), NOW).unwrap();
    let stamp = handle.resolve(NOW).unwrap().stamp().clone();
    place.store().revoke(&name(), NOW).unwrap();
    let other = TlsBinding { tenant: TenantId::parse("other").unwrap(), ..binding() };
    place.store().put(NewSecret::tls(&name(), &other, b"theirs", None), NOW).unwrap();
    let refused = handle.resolve(NOW).map(drop);
    assert_eq!(refused, mismatch(BindMismatch::Tenant { stored: other.tenant, expected: binding().tenant }));
    assert_eq!(handle.check(&stamp, NOW), Err(crate::NotCurrent::Rotated));
}
