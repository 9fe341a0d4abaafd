//! The one error shape clients see.
//!
//! Both servers answer every failure with [`ApiError`]: an HTTP status and the body
//! `{"error":{"message","type","param","code"}}`, all four keys always present. The
//! constructors are the rows of the contract's table, so that a status can not be paired
//! with another row's type. Text of a peer or of an internal error never goes into
//! `message` unread: whoever maps such an error picks a row here and logs the rest.

use std::fmt;

use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

/// The `type` of an error: who has to act.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorKind {
    InvalidRequest,
    Permission,
    RateLimit,
    Policy,
    Server,
}

impl ErrorKind {
    /// The wire text.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorKind::InvalidRequest => "invalid_request_error",
            ErrorKind::Permission => "permission_error",
            ErrorKind::RateLimit => "rate_limit_error",
            ErrorKind::Policy => "policy_error",
            ErrorKind::Server => "server_error",
        }
    }
}

/// The `code` of an error: what a program can branch on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ErrorCode {
    InvalidApiKey,
    InsufficientScope,
    ModelNotFound,
    KvHandleNotFound,
    UnsupportedParameter,
    ContextLengthExceeded,
    RateLimitExceeded,
    UsagePolicy,
    NoCapacity,
    InternalError,
    IfMatchRequired,
    EtagMismatch,
}

impl ErrorCode {
    const ALL: [ErrorCode; 12] = [
        ErrorCode::InvalidApiKey,
        ErrorCode::InsufficientScope,
        ErrorCode::ModelNotFound,
        ErrorCode::KvHandleNotFound,
        ErrorCode::UnsupportedParameter,
        ErrorCode::ContextLengthExceeded,
        ErrorCode::RateLimitExceeded,
        ErrorCode::UsagePolicy,
        ErrorCode::NoCapacity,
        ErrorCode::InternalError,
        ErrorCode::IfMatchRequired,
        ErrorCode::EtagMismatch,
    ];

    /// The wire text.
    pub fn as_str(self) -> &'static str {
        match self {
            ErrorCode::InvalidApiKey => "invalid_api_key",
            ErrorCode::InsufficientScope => "insufficient_scope",
            ErrorCode::ModelNotFound => "model_not_found",
            ErrorCode::KvHandleNotFound => "kv_handle_not_found",
            ErrorCode::UnsupportedParameter => "unsupported_parameter",
            ErrorCode::ContextLengthExceeded => "context_length_exceeded",
            ErrorCode::RateLimitExceeded => "rate_limit_exceeded",
            ErrorCode::UsagePolicy => "usage_policy",
            ErrorCode::NoCapacity => "no_capacity",
            ErrorCode::InternalError => "internal_error",
            ErrorCode::IfMatchRequired => "if_match_required",
            ErrorCode::EtagMismatch => "etag_mismatch",
        }
    }

    fn parse(text: &str) -> Option<ErrorCode> {
        ErrorCode::ALL.into_iter().find(|code| code.as_str() == text)
    }
}

/// A failure as a client sees it. See the module documentation.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
#[error("{} {}: {message}", status.as_u16(), kind.as_str())]
pub struct ApiError {
    pub status: StatusCode,
    pub kind: ErrorKind,
    pub code: Option<ErrorCode>,
    /// What is wrong and what to do, for a reader.
    pub message: String,
    /// The request field at fault, as a path: `messages[2].content`.
    pub param: Option<String>,
    /// Whole seconds for the `Retry-After` header.
    pub retry_after: Option<u64>,
}

impl ApiError {
    fn new(
        status: StatusCode,
        kind: ErrorKind,
        code: Option<ErrorCode>,
        message: impl Into<String>,
    ) -> ApiError {
        ApiError { status, kind, code, message: message.into(), param: None, retry_after: None }
    }

    fn invalid(
        status: StatusCode,
        code: Option<ErrorCode>,
        message: impl Into<String>,
    ) -> ApiError {
        ApiError::new(status, ErrorKind::InvalidRequest, code, message)
    }

    /// 400: the request breaks a rule; `param` names the field.
    pub fn bad_request(message: impl Into<String>, param: impl Into<String>) -> ApiError {
        ApiError::malformed(message).with_param(param)
    }

    /// 400 where no single field is at fault (unreadable JSON, a bad header).
    pub fn malformed(message: impl Into<String>) -> ApiError {
        ApiError::invalid(StatusCode::BAD_REQUEST, None, message)
    }

    /// 400: prompt, or prompt and answer together, exceed what the model or the pool can hold.
    pub fn context_length(message: impl Into<String>) -> ApiError {
        ApiError::invalid(StatusCode::BAD_REQUEST, Some(ErrorCode::ContextLengthExceeded), message)
    }

    /// 401: no or a wrong key.
    pub fn invalid_api_key() -> ApiError {
        let message = "the api key is missing or not valid; send it as Authorization: Bearer <key>";
        ApiError::invalid(StatusCode::UNAUTHORIZED, Some(ErrorCode::InvalidApiKey), message)
    }

    /// 403: the key lacks a scope.
    pub fn insufficient_scope(scope: &str) -> ApiError {
        ApiError::new(
            StatusCode::FORBIDDEN,
            ErrorKind::Permission,
            Some(ErrorCode::InsufficientScope),
            format!("the api key lacks the scope {scope}"),
        )
    }

    /// 404: nobody here serves the model.
    pub fn model_not_found(model: &str) -> ApiError {
        let model = quoted(model);
        ApiError::invalid(
            StatusCode::NOT_FOUND,
            Some(ErrorCode::ModelNotFound),
            format!("the model {model} is not served here; GET /v1/models lists those that are"),
        )
        .with_param("model")
    }

    /// 404: the hand-off handle is unknown, claimed or expired.
    pub fn kv_handle_not_found() -> ApiError {
        ApiError::invalid(
            StatusCode::NOT_FOUND,
            Some(ErrorCode::KvHandleNotFound),
            "no kv blocks wait under this handle: it was claimed, released or its lease ended",
        )
    }

    /// 404: no such path.
    pub fn unknown_path(path: &str) -> ApiError {
        let message = format!("there is nothing at {}", quoted(path));
        ApiError::invalid(StatusCode::NOT_FOUND, None, message)
    }

    /// 405: the path exists, the method does not.
    pub fn method_not_allowed(method: &str, path: &str) -> ApiError {
        let message = format!("{} does not answer {method}", quoted(path));
        ApiError::invalid(StatusCode::METHOD_NOT_ALLOWED, None, message)
    }

    /// 409: a resume whose prompt is not the one the blocks were made of.
    pub fn prompt_mismatch(message: impl Into<String>) -> ApiError {
        ApiError::invalid(StatusCode::CONFLICT, None, message)
    }

    /// 412: what was to be changed is no longer what the client saw.
    pub fn etag_mismatch() -> ApiError {
        ApiError::invalid(
            StatusCode::PRECONDITION_FAILED,
            Some(ErrorCode::EtagMismatch),
            "the table has changed since it was read; read it again",
        )
    }

    /// 428: a change without saying of what.
    pub fn if_match_required() -> ApiError {
        ApiError::invalid(
            StatusCode::PRECONDITION_REQUIRED,
            Some(ErrorCode::IfMatchRequired),
            "send the ETag of the table that was read as If-Match",
        )
    }

    /// 413: the body exceeds `limit` bytes.
    pub fn body_too_large(limit: usize) -> ApiError {
        ApiError::invalid(
            StatusCode::PAYLOAD_TOO_LARGE,
            None,
            format!("the request body is larger than {limit} bytes"),
        )
    }

    /// 422: a known parameter that this server does not implement. `param` names it.
    pub fn unsupported_parameter(param: impl Into<String>, message: impl Into<String>) -> ApiError {
        ApiError::invalid(
            StatusCode::UNPROCESSABLE_ENTITY,
            Some(ErrorCode::UnsupportedParameter),
            message,
        )
        .with_param(param)
    }

    /// 429: full; try again after `retry_after` seconds (at least 1 is sent).
    pub fn rate_limited(message: impl Into<String>, retry_after: u64) -> ApiError {
        let mut error = ApiError::new(
            StatusCode::TOO_MANY_REQUESTS,
            ErrorKind::RateLimit,
            Some(ErrorCode::RateLimitExceeded),
            message,
        );
        error.retry_after = Some(retry_after.max(1));
        error
    }

    /// 451: a usage rule refused the request; the message names it.
    pub fn usage_policy(rule: &str) -> ApiError {
        ApiError::new(
            StatusCode::UNAVAILABLE_FOR_LEGAL_REASONS,
            ErrorKind::Policy,
            Some(ErrorCode::UsagePolicy),
            format!("refused by the usage rule {}", quoted(rule)),
        )
    }

    /// 500. `message` is for clients: never an internal error's text.
    pub fn internal(message: impl Into<String>) -> ApiError {
        ApiError::new(
            StatusCode::INTERNAL_SERVER_ERROR,
            ErrorKind::Server,
            Some(ErrorCode::InternalError),
            message,
        )
    }

    /// 503: nobody can serve this now.
    pub fn no_capacity(message: impl Into<String>) -> ApiError {
        ApiError::new(
            StatusCode::SERVICE_UNAVAILABLE,
            ErrorKind::Server,
            Some(ErrorCode::NoCapacity),
            message,
        )
    }

    #[must_use]
    pub fn with_param(mut self, param: impl Into<String>) -> ApiError {
        self.param = Some(param.into());
        self
    }

    /// `{"error":{..}}`, also the payload of an error event in a stream.
    pub fn body(&self) -> Value {
        json!({"error": {
            "message": self.message,
            "type": self.kind.as_str(),
            "param": self.param,
            "code": self.code.map(ErrorCode::as_str),
        }})
    }

    /// The whole HTTP answer, for any framework that speaks `http`.
    pub fn to_response(&self) -> http::Response<Vec<u8>> {
        let mut response = http::Response::new(self.body().to_string().into_bytes());
        *response.status_mut() = self.status;
        let headers = response.headers_mut();
        headers.insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
        if let Some(seconds) = self.retry_after {
            headers.insert(header::RETRY_AFTER, HeaderValue::from(seconds));
        }
        response
    }
}

/// A server's error answer as another server of ours reads it: for decisions and logs.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PeerError {
    pub status: u16,
    /// `None` for `null`, an unknown code or a body that is not ours.
    pub code: Option<ErrorCode>,
    /// At most 300 characters, for a log line; not for clients.
    pub message: String,
    pub param: Option<String>,
}

impl PeerError {
    /// Never fails: a body that is no error object gives an empty code and its first characters.
    pub fn read(status: u16, body: &[u8]) -> PeerError {
        let body_json: Option<Value> = serde_json::from_slice(body).ok();
        let error = body_json.and_then(|v| v.get("error").cloned());
        let text = |key: &str| {
            error.as_ref().and_then(|e| e.get(key)).and_then(Value::as_str).map(str::to_owned)
        };
        let message = text("message").unwrap_or_else(|| String::from_utf8_lossy(body).into_owned());
        PeerError {
            status,
            code: text("code").as_deref().and_then(ErrorCode::parse),
            message: message.chars().take(300).collect(),
            param: text("param"),
        }
    }
}

impl fmt::Display for PeerError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let code = self.code.map_or("no code", ErrorCode::as_str);
        write!(f, "{} {code}: {}", self.status, self.message)
    }
}

/// Text of a client in double quotes, control characters escaped, cut at 80 characters.
pub(crate) fn quoted(text: &str) -> String {
    let mut shown: String = text.chars().take(80).collect();
    if shown.len() < text.len() {
        shown.push_str("..");
    }
    format!("{shown:?}")
}

#[cfg(test)]
mod tests;
