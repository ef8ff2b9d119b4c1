//! The namespace on a ground that keeps books.
