use crate::sample::*;

const SEED: u64 = 3;

/// What `sample` answers, after making sure that a refusal has drawn nothing.
#[track_caller]
fn check(logits: &[f32], params: SamplingParams, want: SampleError) {
    let mut rng = stream(SEED, PURPOSE_SAMPLE);
    let got = sample(logits, &params, &History::default(), &mut rng);
    assert_eq!(got, Err(want));
    assert_eq!(rng, stream(SEED, PURPOSE_SAMPLE), "nothing drawn");
}

const OFF: SamplingParams = SamplingParams {
    temperature: 1.0,
    top_p: 1.0,
    top_k: 0,
    min_p: 0.0,
    repetition_penalty: 1.0,
    presence_penalty: 0.0,
    frequency_penalty: 0.0,
};

#[test]
fn logits_that_leave_no_choice() {
    let (nan, inf) = (f32::NAN, f32::INFINITY);
    for params in [OFF, SamplingParams::greedy(), SamplingParams { top_k: 1, ..OFF }] {
        check(&[0.0, nan, inf], params, SampleError::NanLogits { token: 1 });
        check(&[0.0, inf, nan], params, SampleError::InfiniteLogits { token: 1 });
        check(&[-inf, -inf], params, SampleError::FullyMasked { vocab: 2 });
        check(&[], params, SampleError::FullyMasked { vocab: 0 });
    }
}

#[test]
fn numbers_that_overflow() {
    let params = SamplingParams { temperature: 1e-300, ..OFF };
    check(&[0.0, 3e38], params, SampleError::Overflow { temperature: 1e-300 });
    check(&[-3e38], params, SampleError::Overflow { temperature: 1e-300 });

    let params = SamplingParams { frequency_penalty: -f64::MAX, ..OFF };
    let mut history = History::default();
    history.push(0);
    history.push(0);
    for logit in [1.0, f32::NEG_INFINITY] {
        let got = sample(&[logit, 0.0], &params, &history, &mut stream(SEED, PURPOSE_SAMPLE));
        assert_eq!(got, Err(SampleError::Overflow { temperature: 1.0 }));
    }
}

#[test]
fn the_smallest_temperature_of_the_wire_works() {
    let params = SamplingParams { temperature: f64::from(f32::from_bits(1)), ..OFF };
    let got = sample(&[f32::MAX, f32::MIN, 1.0], &params, &History::default(), &mut stream(1, 4));
    assert_eq!(got.map(|s| s.token), Ok(0));
}

#[test]
fn parameters_out_of_range() {
    let nan = f64::NAN;
    let inf = f64::INFINITY;
    let ranges: [(&str, &[f64], fn(&mut SamplingParams, f64)); 7] = [
        ("temperature", &[-0.1, nan, inf], |p, x| p.temperature = x),
        ("top_p", &[0.0, -1.0, 1.1, nan], |p, x| p.top_p = x),
        ("top_k", &[-1.0], |p, x| p.top_k = x as i32),
        ("min_p", &[-0.1, 1.1, nan], |p, x| p.min_p = x),
        ("repetition_penalty", &[0.0, -1.0, inf, nan], |p, x| p.repetition_penalty = x),
        ("presence_penalty", &[inf, -inf, nan], |p, x| p.presence_penalty = x),
        ("frequency_penalty", &[inf, -inf, nan], |p, x| p.frequency_penalty = x),
    ];
    for (name, values, set) in ranges {
        for &x in values {
            let mut params = OFF;
            set(&mut params, x);
            let refused = params.validate();
            assert!(
                matches!(refused, Err(SampleError::Range { field, .. }) if field == name),
                "{name} = {x}: {refused:?}"
            );
            let mut rng = stream(SEED, PURPOSE_SAMPLE);
            let got = sample(&[0.0], &params, &History::default(), &mut rng);
            assert!(matches!(got, Err(SampleError::Range { .. })), "{name} = {x}: {got:?}");
        }
    }
}

#[test]
fn limits_of_the_ranges_are_inside() {
    let edges: [fn(&mut SamplingParams); 6] = [
        |p| p.temperature = 0.0,
        |p| p.top_p = f64::MIN_POSITIVE,
        |p| p.top_k = i32::MAX,
        |p| p.min_p = 1.0,
        |p| p.repetition_penalty = f64::MIN_POSITIVE,
        |p| p.presence_penalty = -1e300,
    ];
    for set in edges {
        let mut params = OFF;
        set(&mut params);
        assert_eq!(params.validate(), Ok(()), "{params:?}");
    }
    assert_eq!(SamplingParams::default(), OFF);
}

#[test]
fn messages_name_the_field_and_the_range() {
    let refused = SamplingParams { top_p: 1.5, ..OFF }.validate().map_err(|e| e.to_string());
    assert_eq!(refused, Err("top_p is 1.5, must be above 0 and at most 1".into()));
}
