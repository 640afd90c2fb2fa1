//! Rules about the sources that the compiler does not check, and checks that recipes and documents agree with the code.

mod recipes;
mod rules;
mod sources;
