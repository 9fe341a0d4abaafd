//! One engine as a server: OpenAI HTTP, EngineControl, roles, metrics
