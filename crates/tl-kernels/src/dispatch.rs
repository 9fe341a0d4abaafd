//! From a [`Token`](crate::isa::Token) to a kernel compiled for its instructions.

/// Defines `$name(token, args..)`, which runs the generic kernel `$kernel(simd, args..)` inside a
/// function that enables the token's target features. The kernel must be `#[inline(always)]`.
/// With `unsafe fn`, the contract of the kernel is the caller's to keep.
macro_rules! dispatch {
    ($vis:vis fn $name:ident = $kernel:ident (
        $($arg:ident : $ty:ty),* $(,)?
    ) $(-> $ret:ty)?) => {
        $vis fn $name(token: crate::isa::Token, $($arg: $ty),*) $(-> $ret)? {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            fn avx2(s: crate::simd::avx2::Avx2, $($arg: $ty),*) $(-> $ret)? {
                $kernel(s, $($arg),*)
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma,f16c")]
            fn avx512(s: crate::simd::avx512::Avx512, $($arg: $ty),*) $(-> $ret)? {
                $kernel(s, $($arg),*)
            }
            match token {
                crate::isa::Token::Portable(s) => $kernel(s, $($arg),*),
                // SAFETY: the token proves the features.
                #[cfg(target_arch = "x86_64")]
                crate::isa::Token::Avx2(s) => unsafe { avx2(s, $($arg),*) },
                // SAFETY: the token proves the features.
                #[cfg(target_arch = "x86_64")]
                crate::isa::Token::Avx512(s) => unsafe { avx512(s, $($arg),*) },
                #[cfg(test)]
                crate::isa::Token::Faulty(s) => $kernel(s, $($arg),*),
            }
        }
    };
    ($vis:vis unsafe fn $name:ident = $kernel:ident :: <$elem:ty> (
        $($arg:ident : $ty:ty),* $(,)?
    )) => {
        /// # Safety
        /// The contract of the kernel.
        #[allow(clippy::too_many_arguments, reason = "kernels take plain pointers and sizes")]
        $vis unsafe fn $name(token: crate::isa::Token, $($arg: $ty),*) {
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx2,fma,f16c")]
            unsafe fn avx2(s: crate::simd::avx2::Avx2, $($arg: $ty),*) {
                // SAFETY: the caller keeps the kernel's contract.
                unsafe { $kernel::<_, $elem>(s, $($arg),*) }
            }
            #[cfg(target_arch = "x86_64")]
            #[target_feature(enable = "avx512f,avx2,fma,f16c")]
            unsafe fn avx512(s: crate::simd::avx512::Avx512, $($arg: $ty),*) {
                // SAFETY: the caller keeps the kernel's contract.
                unsafe { $kernel::<_, $elem>(s, $($arg),*) }
            }
            // SAFETY: the caller keeps the kernel's contract; a token proves its features.
            unsafe {
                match token {
                    crate::isa::Token::Portable(s) => $kernel::<_, $elem>(s, $($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    crate::isa::Token::Avx2(s) => avx2(s, $($arg),*),
                    #[cfg(target_arch = "x86_64")]
                    crate::isa::Token::Avx512(s) => avx512(s, $($arg),*),
                    #[cfg(test)]
                    crate::isa::Token::Faulty(s) => $kernel::<_, $elem>(s, $($arg),*),
                }
            }
        }
    };
}

pub(crate) use dispatch;
