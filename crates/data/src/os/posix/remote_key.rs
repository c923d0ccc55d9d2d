//! Private keys for OpenSSL whose operations are carried out elsewhere, so that this process never
//! holds them.
//!
//! OpenSSL calls a method table of the key (`RSA_METHOD`, `EC_KEY_METHOD`) for each private
//! operation. The tables here pass the operation to a [`RemoteSigner`]. A key with such a table is
//! used through OpenSSL's legacy path, as keys in hardware are (openssl-pkcs11).

use std::ffi::{c_int, c_long, c_uchar, c_uint, c_void};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, OnceLock};

use foreign_types::ForeignType;
use openssl::ec::EcKey;
use openssl::error::ErrorStack;
use openssl::pkey::{Id, PKey, PKeyRef, Private, Public};
use openssl::rsa::{Padding, Rsa};
use openssl_sys as ffi;

/// Carries out private operations with a key that is elsewhere. `None` fails the operation, and so
/// the handshake that needs it.
pub trait RemoteSigner: Send + Sync + 'static {
    /// Pads `input` and applies the private key (RSASP1, RFC 8017 §5.2.1).
    fn rsa_private_encrypt(&self, input: &[u8], padding: Padding) -> Option<Vec<u8>>;

    /// Signs a digest (ECDSA); returns the signature, DER.
    fn ecdsa_sign(&self, digest: &[u8]) -> Option<Vec<u8>>;
}

/// The reason why a remote key cannot be made.
#[derive(Debug, thiserror::Error)]
pub enum RemoteKeyError {
    /// Neither RSA nor an elliptic curve.
    #[error("only RSA and ECDSA keys can be held by another process, and this is neither")]
    Unsupported,
    /// OpenSSL refused a step.
    #[error("OpenSSL: {0}")]
    OpenSsl(#[from] ErrorStack),
}

/// A private key for OpenSSL with the public part `public`, whose operations `signer` carries out.
/// The signer lives as long as the process: OpenSSL does not say when it forgets a key.
///
/// # Errors
/// See [`RemoteKeyError`].
pub fn remote_key(
    public: &PKeyRef<Public>,
    signer: Arc<dyn RemoteSigner>,
) -> Result<PKey<Private>, RemoteKeyError> {
    match public.id() {
        Id::RSA => remote_rsa(&public.rsa()?, signer),
        Id::EC => remote_ec(&public.ec_key()?, signer),
        _ => Err(RemoteKeyError::Unsupported),
    }
}

/// OpenSSL's `RSA_METHOD`.
#[repr(C)]
struct RsaMethod {
    _opaque: [u8; 0],
}

/// OpenSSL's `EC_KEY_METHOD`.
#[repr(C)]
struct EcKeyMethod {
    _opaque: [u8; 0],
}

type RsaPrivateEncrypt =
    unsafe extern "C" fn(c_int, *const c_uchar, *mut c_uchar, *mut ffi::RSA, c_int) -> c_int;
type EcdsaSign = unsafe extern "C" fn(
    c_int,
    *const c_uchar,
    c_int,
    *mut c_uchar,
    *mut c_uint,
    *const ffi::BIGNUM,
    *const ffi::BIGNUM,
    *mut ffi::EC_KEY,
) -> c_int;
/// A callback that is left to OpenSSL's default.
type NoCallback = Option<unsafe extern "C" fn()>;

// Declarations as in openssl/rsa.h, openssl/ec.h and openssl/crypto.h of OpenSSL 1.1.1 and 3.
unsafe extern "C" {
    fn RSA_PKCS1_OpenSSL() -> *const RsaMethod;
    fn RSA_meth_dup(method: *const RsaMethod) -> *mut RsaMethod;
    fn RSA_meth_set_priv_enc(method: *mut RsaMethod, encrypt: RsaPrivateEncrypt) -> c_int;
    fn RSA_set_method(key: *mut ffi::RSA, method: *const RsaMethod) -> c_int;
    fn RSA_set_ex_data(key: *mut ffi::RSA, index: c_int, value: *mut c_void) -> c_int;
    fn RSA_get_ex_data(key: *const ffi::RSA, index: c_int) -> *mut c_void;
    fn EC_KEY_OpenSSL() -> *const EcKeyMethod;
    fn EC_KEY_METHOD_new(method: *const EcKeyMethod) -> *mut EcKeyMethod;
    fn EC_KEY_METHOD_set_sign(
        method: *mut EcKeyMethod,
        sign: EcdsaSign,
        setup: NoCallback,
        sign_sig: NoCallback,
    );
    fn EC_KEY_set_method(key: *mut ffi::EC_KEY, method: *const EcKeyMethod) -> c_int;
    fn EC_KEY_set_ex_data(key: *mut ffi::EC_KEY, index: c_int, value: *mut c_void) -> c_int;
    fn EC_KEY_get_ex_data(key: *const ffi::EC_KEY, index: c_int) -> *mut c_void;
    fn ECDSA_size(key: *const ffi::EC_KEY) -> c_int;
    fn EVP_PKEY_set1_EC_KEY(key: *mut ffi::EVP_PKEY, ec: *mut ffi::EC_KEY) -> c_int;
    fn CRYPTO_get_ex_new_index(
        class: c_int,
        argl: c_long,
        argp: *mut c_void,
        new: NoCallback,
        dup: NoCallback,
        free: NoCallback,
    ) -> c_int;
}

/// `CRYPTO_EX_INDEX_EC_KEY` of openssl/crypto.h.
const EX_CLASS_EC_KEY: c_int = 8;
/// `CRYPTO_EX_INDEX_RSA` of openssl/crypto.h.
const EX_CLASS_RSA: c_int = 9;
/// The result of a failed private operation: -1 for RSA.
const RSA_FAILED: c_int = -1;

/// A method table and the index of the signer in a key's extra data. Both live as long as the
/// process.
struct SigningMethod<M> {
    method: *const M,
    index: c_int,
}

// SAFETY: the table is written before it is published by the OnceLock, and only read afterwards.
unsafe impl<M> Send for SigningMethod<M> {}
// SAFETY: as above.
unsafe impl<M> Sync for SigningMethod<M> {}

/// The method table for RSA; `None` if OpenSSL has no memory.
fn rsa_method() -> Option<&'static SigningMethod<RsaMethod>> {
    static METHOD: OnceLock<Option<SigningMethod<RsaMethod>>> = OnceLock::new();
    let made = METHOD.get_or_init(|| {
        openssl::init();
        // SAFETY: the table of OpenSSL is constant; the copy is ours and checked for null; the
        // callback has the type that rsa.h demands; extra data without callbacks is a bare pointer.
        unsafe {
            let method = RSA_meth_dup(RSA_PKCS1_OpenSSL());
            if method.is_null() || RSA_meth_set_priv_enc(method, rsa_private_encrypt) != 1 {
                return None;
            }
            let index =
                CRYPTO_get_ex_new_index(EX_CLASS_RSA, 0, std::ptr::null_mut(), None, None, None);
            (index >= 0).then_some(SigningMethod { method, index })
        }
    });
    made.as_ref()
}

/// The method table for elliptic curves; `None` if OpenSSL has no memory.
fn ec_method() -> Option<&'static SigningMethod<EcKeyMethod>> {
    static METHOD: OnceLock<Option<SigningMethod<EcKeyMethod>>> = OnceLock::new();
    let made = METHOD.get_or_init(|| {
        openssl::init();
        // SAFETY: as in `rsa_method`; the callbacks that are left out are those that only
        // ECDSA_do_sign and precomputation use, which TLS does not call.
        unsafe {
            let method = EC_KEY_METHOD_new(EC_KEY_OpenSSL());
            if method.is_null() {
                return None;
            }
            EC_KEY_METHOD_set_sign(method, ecdsa_sign, None, None);
            let index =
                CRYPTO_get_ex_new_index(EX_CLASS_EC_KEY, 0, std::ptr::null_mut(), None, None, None);
            (index >= 0).then_some(SigningMethod { method, index })
        }
    });
    made.as_ref()
}

/// A signer as extra data of a key. It is leaked: see [`remote_key`].
fn leak(signer: Arc<dyn RemoteSigner>) -> *mut c_void {
    let leaked: &'static Arc<dyn RemoteSigner> = Box::leak(Box::new(signer));
    std::ptr::from_ref(leaked).cast_mut().cast()
}

/// The signer behind the extra data of a key.
///
/// # Safety
/// `data` is null or comes from [`leak`].
unsafe fn signer_of(data: *const c_void) -> Option<&'static Arc<dyn RemoteSigner>> {
    // SAFETY: the caller's promise; leaked memory is never freed.
    unsafe { data.cast::<Arc<dyn RemoteSigner>>().as_ref() }
}

fn remote_rsa(
    public: &Rsa<Public>,
    signer: Arc<dyn RemoteSigner>,
) -> Result<PKey<Private>, RemoteKeyError> {
    let method = rsa_method().ok_or_else(ErrorStack::get)?;
    // A key of its own, because the table and the signer belong to this key alone.
    let rsa = Rsa::from_public_components(public.n().to_owned()?, public.e().to_owned()?)?;
    // SAFETY: `rsa` is a live RSA key that nobody else uses yet; the table and the leaked signer
    // live for ever. EVP_PKEY_set1_RSA takes a reference of its own. The new EVP_PKEY is owned by
    // `PKey`. It has no private part in this process, which every use respects, because OpenSSL
    // passes private operations to the table.
    unsafe {
        check(RSA_set_method(rsa.as_ptr(), method.method))?;
        check(RSA_set_ex_data(rsa.as_ptr(), method.index, leak(signer)))?;
        let key = ffi::EVP_PKEY_new();
        if key.is_null() {
            return Err(ErrorStack::get().into());
        }
        let key = PKey::<Private>::from_ptr(key);
        check(ffi::EVP_PKEY_set1_RSA(key.as_ptr(), rsa.as_ptr()))?;
        Ok(key)
    }
}

fn remote_ec(
    public: &EcKey<Public>,
    signer: Arc<dyn RemoteSigner>,
) -> Result<PKey<Private>, RemoteKeyError> {
    let method = ec_method().ok_or_else(ErrorStack::get)?;
    let ec = EcKey::from_public_key(public.group(), public.public_key())?;
    // SAFETY: as in `remote_rsa`.
    unsafe {
        check(EC_KEY_set_method(ec.as_ptr(), method.method))?;
        check(EC_KEY_set_ex_data(ec.as_ptr(), method.index, leak(signer)))?;
        let key = ffi::EVP_PKEY_new();
        if key.is_null() {
            return Err(ErrorStack::get().into());
        }
        let key = PKey::<Private>::from_ptr(key);
        check(EVP_PKEY_set1_EC_KEY(key.as_ptr(), ec.as_ptr()))?;
        Ok(key)
    }
}

fn check(result: c_int) -> Result<(), ErrorStack> {
    if result == 1 {
        Ok(())
    } else {
        Err(ErrorStack::get())
    }
}

/// `rsa_priv_enc` of the method table: RSA_private_encrypt(3).
///
/// # Safety
/// Called by OpenSSL: `from` has `length` bytes, `to` has RSA_size(key) bytes.
unsafe extern "C" fn rsa_private_encrypt(
    length: c_int,
    from: *const c_uchar,
    to: *mut c_uchar,
    key: *mut ffi::RSA,
    padding: c_int,
) -> c_int {
    let Ok(length) = usize::try_from(length) else {
        return RSA_FAILED;
    };
    // SAFETY: OpenSSL's contract, see above; the index is the one under which the signer was set.
    let (input, output, signer) = unsafe {
        let Some(method) = rsa_method() else {
            return RSA_FAILED;
        };
        let Some(signer) = signer_of(RSA_get_ex_data(key, method.index)) else {
            return RSA_FAILED;
        };
        let Ok(size) = usize::try_from(ffi::RSA_size(key)) else {
            return RSA_FAILED;
        };
        (
            std::slice::from_raw_parts(from, length),
            std::slice::from_raw_parts_mut(to, size),
            signer,
        )
    };
    let sign = || signer.rsa_private_encrypt(input, Padding::from_raw(padding));
    // A panic must not unwind into C.
    match catch_unwind(AssertUnwindSafe(sign)) {
        Ok(Some(signature)) if signature.len() == output.len() => {
            output.copy_from_slice(&signature);
            c_int::try_from(signature.len()).unwrap_or(RSA_FAILED)
        }
        _ => RSA_FAILED,
    }
}

/// `sign` of the method table: ECDSA_sign(3).
///
/// # Safety
/// Called by OpenSSL: `digest` has `length` bytes, `signature` has ECDSA_size(key) bytes.
unsafe extern "C" fn ecdsa_sign(
    _kind: c_int,
    digest: *const c_uchar,
    length: c_int,
    signature: *mut c_uchar,
    signature_length: *mut c_uint,
    _kinv: *const ffi::BIGNUM,
    _r: *const ffi::BIGNUM,
    key: *mut ffi::EC_KEY,
) -> c_int {
    let Ok(length) = usize::try_from(length) else {
        return 0;
    };
    // SAFETY: OpenSSL's contract, see above; the index is the one under which the signer was set.
    // ECDSA_size only reads the public parameters of the key.
    let (input, output, signer) = unsafe {
        let Some(method) = ec_method() else {
            return 0;
        };
        let Some(signer) = signer_of(EC_KEY_get_ex_data(key, method.index)) else {
            return 0;
        };
        let Ok(size) = usize::try_from(ECDSA_size(key)) else {
            return 0;
        };
        (
            std::slice::from_raw_parts(digest, length),
            std::slice::from_raw_parts_mut(signature, size),
            signer,
        )
    };
    // A panic must not unwind into C.
    match catch_unwind(AssertUnwindSafe(|| signer.ecdsa_sign(input))) {
        Ok(Some(signed)) if signed.len() <= output.len() => {
            output[..signed.len()].copy_from_slice(&signed);
            // SAFETY: OpenSSL passes a valid place for the length.
            unsafe { *signature_length = c_uint::try_from(signed.len()).unwrap_or(0) };
            1
        }
        _ => 0,
    }
}

#[cfg(test)]
mod tests {
    use openssl::ec::EcGroup;
    use openssl::ecdsa::EcdsaSig;
    use openssl::hash::MessageDigest;
    use openssl::nid::Nid;
    use openssl::rsa::Padding as RsaPadding;
    use openssl::sign::{Signer, Verifier};

    use super::*;

    /// Holds the keys in this process.
    struct LocalSigner {
        rsa: Rsa<Private>,
        ec: EcKey<Private>,
    }

    impl RemoteSigner for LocalSigner {
        fn rsa_private_encrypt(&self, input: &[u8], padding: Padding) -> Option<Vec<u8>> {
            let mut output = vec![0; self.rsa.size() as usize];
            self.rsa.private_encrypt(input, &mut output, padding).ok()?;
            Some(output)
        }

        fn ecdsa_sign(&self, digest: &[u8]) -> Option<Vec<u8>> {
            EcdsaSig::sign(digest, &self.ec).ok()?.to_der().ok()
        }
    }

    fn signer() -> LocalSigner {
        let group = EcGroup::from_curve_name(Nid::X9_62_PRIME256V1).unwrap();
        LocalSigner {
            rsa: Rsa::generate(2048).unwrap(),
            ec: EcKey::generate(&group).unwrap(),
        }
    }

    fn public(key: &PKeyRef<Private>) -> PKey<Public> {
        PKey::public_key_from_der(&key.public_key_to_der().unwrap()).unwrap()
    }

    #[test]
    fn signatures_of_a_remote_key_are_valid() {
        let local = signer();
        let rsa = public(&PKey::from_rsa(local.rsa.clone()).unwrap());
        let ec = public(&PKey::from_ec_key(local.ec.clone()).unwrap());
        let local: Arc<dyn RemoteSigner> = Arc::new(local);
        // RSA-PSS is what TLS 1.3 uses, PKCS #1 what TLS 1.2 may use (RFC 8446 §4.2.3).
        for (public, padding) in [
            (&rsa, Some(RsaPadding::PKCS1)),
            (&rsa, Some(RsaPadding::PKCS1_PSS)),
            (&ec, None),
        ] {
            let key = remote_key(public, Arc::clone(&local)).unwrap();
            assert!(key.public_eq(public));
            let mut signing = Signer::new(MessageDigest::sha256(), &key).unwrap();
            let mut verifying = Verifier::new(MessageDigest::sha256(), public).unwrap();
            if let Some(padding) = padding {
                signing.set_rsa_padding(padding).unwrap();
                verifying.set_rsa_padding(padding).unwrap();
            }
            let signature = signing.sign_oneshot_to_vec(b"a transcript").unwrap();
            assert!(
                verifying
                    .verify_oneshot(&signature, b"a transcript")
                    .unwrap()
            );
        }
    }

    /// Refuses or panics.
    struct BrokenSigner;

    impl RemoteSigner for BrokenSigner {
        fn rsa_private_encrypt(&self, _: &[u8], _: Padding) -> Option<Vec<u8>> {
            None
        }

        #[allow(clippy::panic, reason = "the panic is what is tested")]
        fn ecdsa_sign(&self, _: &[u8]) -> Option<Vec<u8>> {
            panic!("a defect")
        }
    }

    #[test]
    fn a_refused_operation_fails_the_signature() {
        let local = signer();
        for key in [
            PKey::from_rsa(local.rsa).unwrap(),
            PKey::from_ec_key(local.ec).unwrap(),
        ] {
            let key = remote_key(&public(&key), Arc::new(BrokenSigner)).unwrap();
            let mut signing = Signer::new(MessageDigest::sha256(), &key).unwrap();
            assert!(signing.sign_oneshot_to_vec(b"a transcript").is_err());
        }
    }
}
