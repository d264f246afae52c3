//! Whatever may be stored is read back as it was, and whatever else is in a file is refused without a panic.

use proptest::prelude::*;

use super::*;
use crate::{SecretInfo, SecretProtocol, SecretPurpose, record, seal};

prop_compose! {
    fn any_info()(
        name in "[A-Za-z0-9][A-Za-z0-9_-]{0,63}",
        tenant in "[!-~]{1,64}",
        provider in "[A-Za-z0-9-]{1,30}(\\.[A-Za-z0-9_-]{1,30})?",
        server_name in "[a-z0-9:_]{1,60}([.-][a-z0-9_]{1,60}){0,3}",
        numbers in (1..=u16::MAX, any::<u64>(), any::<u64>(), any::<Option<u64>>()),
        purpose in prop::sample::select(vec![
            SecretPurpose::TlsProviderCredential, SecretPurpose::BusCredential,
            SecretPurpose::HttpCredential, SecretPurpose::GuestReadable,
        ]),
        protocol in prop::sample::select(vec![SecretProtocol::Tls, SecretProtocol::Http]),
        revoked in any::<bool>(),
    ) -> SecretInfo {
        let (port, version, written, expires) = numbers;
        SecretInfo {
            name: SecretName::parse(&name).unwrap(),
            purpose,
            tenant: TenantId::parse(&tenant).unwrap(),
            provider: ProviderId::parse(&provider).unwrap(),
            protocol,
            server_name,
            port,
            version,
            written: UnixMillis(written),
            expires: expires.map(UnixMillis),
            revoked,
        }
    }
}

fn file_of(info: &SecretInfo, value: &[u8]) -> Vec<u8> {
    let stored = Some(value).filter(|_| !info.revoked);
    record::encode(&SealingKey::from_bytes(&KEY), &[9; seal::NONCE_BYTES], info, stored).unwrap()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn what_is_written_is_read_back(info in any_info(), value in prop::collection::vec(any::<u8>(), 1..=4_096)) {
        let key = SealingKey::from_bytes(&KEY);
        let file = file_of(&info, &value);
        let (read, text) = record::decode(&info.name, &file).unwrap().open(&key).unwrap();
        prop_assert_eq!(&read, &info);
        prop_assert_eq!(seal::value_of(&text), Some(&value[..]).filter(|_| !info.revoked));
        // Under another key it is nothing.
        let other = SealingKey::from_bytes(&[8; 32]);
        prop_assert!(record::decode(&info.name, &file).unwrap().open(&other).is_none());
    }

    #[test]
    fn a_file_with_any_part_replaced_is_refused(
        info in any_info(), at in any::<prop::sample::Index>(), cut in 0..40_usize, put in prop::collection::vec(any::<u8>(), 0..40),
    ) {
        let file = file_of(&info, VALUE);
        let at = at.index(file.len());
        let end = (at + cut).min(file.len());
        let changed = [&file[..at], &put[..], &file[end..]].concat();
        prop_assume!(changed != file);
        let opened = record::decode(&info.name, &changed).ok().and_then(|sealed| sealed.open(&SealingKey::from_bytes(&KEY)));
        prop_assert!(opened.is_none());
    }

    #[test]
    fn bytes_of_any_kind_are_refused(content in prop::collection::vec(any::<u8>(), 0..600), lines in "[ -~\\n]{0,600}") {
        prop_assert!(record::decode(&name(), &content).is_err());
        prop_assert!(record::decode(&name(), lines.as_bytes()).is_err());
    }
}
