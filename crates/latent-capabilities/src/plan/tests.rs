use latent_core::ContractName;

use super::*;
use crate::provider::tests::{Never, reference};

fn tenant() -> TenantId {
    TenantId::parse("acme").unwrap()
}

fn topic(name: &str) -> LogicalTopic {
    LogicalTopic::parse(name).unwrap()
}

fn binding(publication: u64, provider: ProviderRef, topics: &[&str]) -> EventBinding {
    EventBinding {
        publication: PublicationId(publication),
        tenant: tenant(),
        provider,
        topics: topics.iter().map(|name| topic(name)).collect(),
    }
}

fn installed(references: &[ProviderRef]) -> Providers {
    let providers = Providers::default();
    for reference in references {
        providers.install(reference.clone(), None, Arc::new(Never)).unwrap();
    }
    providers
}

fn raw_provider() -> ProviderRef {
    ProviderRef { logical_id: latent_core::ProviderId::parse("raw").unwrap(), ..reference(1) }
}

fn compile(bindings: Vec<EventBinding>, providers: &Providers) -> Result<CompiledEventBindings, BindingError> {
    CompiledEventBindings::compile(bindings, providers, Epoch(0))
}

#[test]
fn the_topic_chooses_among_the_providers_of_a_service() {
    let providers = installed(&[reference(1), raw_provider()]);
    let compiled = compile(vec![binding(1, reference(1), &["a"]), binding(1, raw_provider(), &["b"])], &providers).unwrap();
    let authorise = |publication, name: &str| compiled.plan.authorise_publish(PublicationId(publication), &tenant(), &topic(name)).cloned();
    assert_eq!((authorise(1, "a"), authorise(1, "b")), (Ok(reference(1)), Ok(raw_provider())));
    for (publication, name) in [(1, "c"), (2, "a")] {
        assert_eq!(authorise(publication, name), Err(KnownFailure::PermissionDenied), "{publication} {name}");
    }
    let other = TenantId::parse("other").unwrap();
    assert!(compiled.plan.authorise_publish(PublicationId(1), &other, &topic("a")).is_err());
    assert_eq!(compiled.grants_count(), 2);
}

#[test]
fn a_topic_that_two_bindings_of_a_service_serve_is_refused_and_named() {
    let providers = installed(&[reference(1), raw_provider()]);
    for second in [reference(1), raw_provider()] {
        let refused = compile(vec![binding(1, reference(1), &["a", "b"]), binding(1, second, &["b"])], &providers);
        assert_eq!(refused, Err(BindingError::AmbiguousTopic { publication: PublicationId(1), tenant: tenant(), topic: topic("b") }));
    }
    assert!(compile(vec![binding(1, reference(1), &["a"]), binding(2, reference(1), &["a"])], &providers).is_ok());
}

#[test]
fn an_incomplete_binding_names_what_is_missing() {
    let providers = installed(&[reference(1)]);
    let none = compile(vec![binding(1, reference(1), &[])], &providers);
    let provider = Box::new(reference(1));
    assert_eq!(none, Err(BindingError::NoTopics { publication: PublicationId(1), tenant: tenant(), provider }));
    let logical_id = raw_provider().logical_id;
    let missing = compile(vec![binding(1, raw_provider(), &["a"])], &providers);
    assert_eq!(missing, Err(BindingError::Provider(ProviderMismatch::NotInstalled { logical_id })));
}

#[test]
fn a_provider_of_another_interface_version_cannot_be_bound() {
    let old = ProviderRef { capability: ContractName::parse("latent:events/publisher@0.1.0").unwrap(), ..reference(1) };
    let refused = compile(vec![binding(1, old.clone(), &["a"])], &installed(std::slice::from_ref(&old)));
    assert_eq!(refused, Err(BindingError::OtherCapability(Box::new(old))));
}

#[test]
fn grants_are_bounded_at_their_edge() {
    let providers = installed(&[reference(1)]);
    let most = limits::EVENT_GRANTS.max;
    let with = |count: u64| {
        let topics = (0..count).map(|number| topic(&format!("t{number}"))).collect();
        compile(vec![EventBinding { topics, ..binding(1, reference(1), &[]) }], &providers)
    };
    assert!(with(most - 1).is_ok() && with(most).is_ok());
    assert!(matches!(with(most + 1), Err(BindingError::Limit(error)) if error.name == "event_grants" && error.value == most + 1));
}

#[test]
fn a_replacement_needs_the_plan_it_was_compiled_against() {
    let (book, providers) = (PlanBook::default(), installed(&[reference(1)]));
    let compile = || CompiledEventBindings::compile([binding(1, reference(1), &["a"])], &providers, book.epoch()).unwrap();
    let (first, late) = (compile(), compile());
    assert_eq!(book.install(first, &providers), Ok(Epoch(1)));
    assert_eq!(book.install(late, &providers), Err(InstallRefused::PlanReplaced { expected: Epoch(0), current: Epoch(1) }));
    assert_eq!(book.install(compile(), &providers), Ok(Epoch(2)));
}

#[test]
fn bindings_to_a_provider_that_was_replaced_meanwhile_are_refused() {
    let (book, providers) = (PlanBook::default(), installed(&[reference(1)]));
    let compiled = compile(vec![binding(1, reference(1), &["a"])], &providers).unwrap();
    providers.install(reference(2), Some(Epoch(1)), Arc::new(Never)).unwrap();
    let mismatch = ProviderMismatch::Epoch { logical_id: reference(1).logical_id, expected: Epoch(1), installed: Epoch(2) };
    assert_eq!(book.install(compiled, &providers), Err(InstallRefused::Provider(mismatch)));
    assert_eq!(book.epoch(), Epoch(0));
}
