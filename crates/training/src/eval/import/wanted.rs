//! What an import shall do: the command line, and where that is silent a recipe.

use net::models;
use recipe::{Changes, Init, Known, Recipe};

use crate::error::Error;
use crate::eval::request::ImportRequest;
use crate::train::plan::source::transform_names;

/// The request after the recipe.
pub struct Wanted {
    /// The network.
    pub network: Option<String>,
    /// From a picture to the input; empty: not given.
    pub transforms: Vec<String>,
    /// Rules and patterns for names.
    pub init: Init,
}

impl Wanted {
    /// What is not given is the recipe's, if there is one.
    pub fn of(request: &ImportRequest) -> Result<Self, Error> {
        let (names, transforms) = (models::names(), transform_names());
        let known = Known { models: &names, transforms: &transforms };
        let recipe = request.recipe.as_ref().map(|path| Recipe::load(path, &Changes::default(), &known)).transpose()?;
        let recipe = recipe.map(|loaded| loaded.recipe);
        let init = recipe.as_ref().map(|recipe| recipe.init.clone()).unwrap_or_default();
        let given = |list: &[String], of: Option<Vec<String>>| if list.is_empty() { of } else { Some(list.to_vec()) };
        let eval = recipe.as_ref().map(|recipe| recipe.augment.eval.clone());
        Ok(Self {
            transforms: given(&request.transforms, eval).unwrap_or_default(),
            network: request.model.clone().or(recipe.map(|recipe| recipe.model)),
            init: Init {
                from: None,
                key: request.key.clone().or(init.key),
                exclude: given(&request.exclude, init.exclude),
                strict: None,
                r#match: if request.rules.is_empty() { init.r#match } else { Some(request.rules.clone()) },
                whiten: None,
            },
        })
    }
}
