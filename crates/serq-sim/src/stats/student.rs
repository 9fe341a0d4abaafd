//! Quantiles of Student's t, computed.
//!
//! The distribution function is an incomplete beta integral: for t > 0 and n degrees of freedom,
//! P(T <= t) = 1 - I(n / (n + t^2); n/2, 1/2) / 2. The integral is evaluated by its continued
//! fraction, the quantile found by bisection.

/// Steps of the bisection: more than the bits of a number.
const STEPS: u32 = 200;

/// The point that Student's t with that many degrees of freedom does not exceed with probability
/// `p`, in 0.5..1; NaN without a degree of freedom.
pub fn student_t(p: f64, degrees: u64) -> f64 {
    if degrees == 0 || !(0.5..1.0).contains(&p) {
        return f64::NAN;
    }
    let n = degrees as f64;
    let beyond = |t: f64| incomplete_beta(n / 2.0, 0.5, n / (n + t * t)) / 2.0;
    let (mut low, mut high) = (0.0, 1.0);
    while beyond(high) > 1.0 - p && high < 1e300 {
        high *= 2.0;
    }
    for _ in 0..STEPS {
        let middle = f64::midpoint(low, high);
        if beyond(middle) > 1.0 - p { low = middle } else { high = middle }
    }
    high
}

/// The regularised incomplete beta integral from 0 to `x`.
fn incomplete_beta(a: f64, b: f64, x: f64) -> f64 {
    if x <= 0.0 {
        return 0.0;
    }
    if x >= 1.0 {
        return 1.0;
    }
    let scale = libm::lgamma(a + b) - libm::lgamma(a) - libm::lgamma(b);
    let front = libm::exp(scale + a * libm::log(x) + b * libm::log1p(-x));
    // The fraction converges fast below the mean; the other side by symmetry.
    if x < (a + 1.0) / (a + b + 2.0) {
        front * fraction(a, b, x) / a
    } else {
        1.0 - front * fraction(b, a, 1.0 - x) / b
    }
}

/// Lentz's evaluation of the continued fraction.
fn fraction(a: f64, b: f64, x: f64) -> f64 {
    const TINY: f64 = 1e-300;
    let safe = |v: f64| if v.abs() < TINY { TINY } else { v };
    let mut c = 1.0;
    let mut d = 1.0 / safe(1.0 - (a + b) * x / (a + 1.0));
    let mut value = d;
    for m in 1..1000 {
        let m = f64::from(m);
        let even = m * (b - m) * x / ((a + 2.0 * m - 1.0) * (a + 2.0 * m));
        let odd = -(a + m) * (a + b + m) * x / ((a + 2.0 * m) * (a + 2.0 * m + 1.0));
        let mut change = 1.0;
        for term in [even, odd] {
            d = 1.0 / safe(1.0 + term * d);
            c = safe(1.0 + term / c);
            change = d * c;
            value *= change;
        }
        if (change - 1.0).abs() < 1e-15 {
            break;
        }
    }
    value
}
