//! The sources themselves, and the recipes that come with them.

mod arrows;
mod circles;
mod counts;
mod creates;
mod layering;
mod names;
mod package;
mod prints;
mod recipes;
mod sizes;
mod syntax;
mod tokens;
