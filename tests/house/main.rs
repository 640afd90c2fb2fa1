//! Rules about the sources that the compiler does not check, and the recipes and documents that must agree with the code.

mod counts;
mod recipes;
mod rules;
mod sources;
