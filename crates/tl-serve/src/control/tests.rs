use super::*;

#[test]
fn only_this_machine_is_a_target_by_default() {
    #[track_caller]
    fn check(target: &str, accepted: bool) {
        assert_eq!(TargetPolicy::Loopback.refuse(target).is_none(), accepted, "{target}");
    }
    check("127.0.0.1:50052", true);
    check("127.3.2.1:50052", true);
    check("localhost:50052", true);
    check("[::1]:50052", true);
    check("10.0.0.1:50052", false);
    check("169.254.169.254:80", false);
    check("localhost.example.org:50052", false);
    check("127.0.0.1", false);
    check("", false);
    assert_eq!(TargetPolicy::Registered.refuse("10.0.0.1:50052"), None);
    let listed = TargetPolicy::Listed(["d:1".to_owned()].into());
    assert_eq!(listed.refuse("d:1"), None);
    assert!(listed.refuse("d:2").is_some());
}

#[test]
fn sampling_ranges_and_what_zero_means() {
    use tl_proto::engine::v1::SamplingParams as Proto;
    let ok = Proto { max_new_tokens: 3, temperature: 0.5, seed: 9, ..Proto::default() };
    let (params, seed, n) = sampling_from_proto(Some(&ok)).expect("in range");
    assert_eq!((params.temperature, params.top_p, params.repetition_penalty), (0.5, 1.0, 1.0));
    assert_eq!((seed, n), (9, 3));

    #[track_caller]
    fn check(change: impl FnOnce(&mut Proto)) {
        let mut p = Proto { max_new_tokens: 1, ..Proto::default() };
        change(&mut p);
        let refused = sampling_from_proto(Some(&p)).expect_err("out of range");
        assert_eq!(refused.code(), tonic::Code::InvalidArgument);
    }
    check(|p| p.temperature = -1.0);
    check(|p| p.temperature = f32::NAN);
    check(|p| p.temperature = f32::INFINITY);
    check(|p| p.top_p = 1.5);
    check(|p| p.top_p = -0.1);
    check(|p| p.min_p = 1.5);
    check(|p| p.repetition_penalty = -1.0);
    check(|p| p.top_k = -1);
    check(|p| p.presence_penalty = f32::NAN);
    check(|p| p.frequency_penalty = f32::NAN);
    check(|p| p.max_new_tokens = 0);
    check(|p| p.max_new_tokens = -5);
    check(|p| p.logprobs = 21);
    check(|p| p.logprobs = -1);
    assert!(sampling_from_proto(None).is_err());
}
