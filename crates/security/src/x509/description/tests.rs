use crate::test_pki::{ProxyForm, ProxyPolicy, TestAuthority, TestProxy};

#[test]
fn the_kind_is_that_of_the_leaf() {
    let authority = TestAuthority::new("/O=Grid/CN=Authority");
    let user = authority.user("Ada");
    assert_eq!(user.describe_kind(), "certificate");
    assert_eq!(
        authority.user("proxy of Ada").describe_kind(),
        "certificate"
    );
    for (form, policy, kind) in [
        (ProxyForm::Rfc, ProxyPolicy::InheritAll, "RFC 3820 proxy"),
        (
            ProxyForm::Rfc,
            ProxyPolicy::Limited,
            "RFC 3820 limited proxy",
        ),
        (
            ProxyForm::Rfc,
            ProxyPolicy::Independent,
            "RFC 3820 independent proxy",
        ),
        (ProxyForm::Draft, ProxyPolicy::InheritAll, "draft proxy"),
        (
            ProxyForm::Draft,
            ProxyPolicy::Limited,
            "draft limited proxy",
        ),
        (ProxyForm::Legacy, ProxyPolicy::InheritAll, "legacy proxy"),
        (
            ProxyForm::Legacy,
            ProxyPolicy::Limited,
            "legacy limited proxy",
        ),
    ] {
        let proxy = TestProxy::new(form, policy).of(&user);
        assert_eq!(proxy.describe_kind(), kind);
        // The kind of what is above does not count.
        let below = TestProxy::new(ProxyForm::Rfc, ProxyPolicy::InheritAll).of(&proxy);
        assert_eq!(below.describe_kind(), "RFC 3820 proxy");
    }
}
