//! From the text of a deployment to its intermediate representation.
