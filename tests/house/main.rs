//! The sources themselves, and the recipes that come with them.

mod layering;
mod recipes;
