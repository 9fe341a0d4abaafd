//! One forward pass: weights, tokenizer, chat template
