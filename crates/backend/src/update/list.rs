//! The list of all optimizers, which the tables of update rules here and of optimizers in `engine::optim` are made from.

/// Calls the macro `$then` with a line for each update rule: the name of its files, here and in `engine::optim`; its variant and type;
/// then each `optimizer.kind` of a recipe that runs it, with the type of its settings. The order is that of messages and of the manual.
#[macro_export]
macro_rules! for_each_optimizer {
    ($then:ident) => {
        $then! {
            sgd: Sgd(SgdRule), "sgd" => Sgd;
            adam: Adam(AdamRule), "adam" => Adam, "adamw" => AdamW;
            rmsprop: RmsProp(RmsPropRule), "rmsprop" => RmsProp;
            lars: Lars(LarsRule), "lars" => Lars;
            adagrad: Adagrad(AdagradRule), "adagrad" => Adagrad;
            lion: Lion(LionRule), "lion" => Lion;
            lamb: Lamb(LambRule), "lamb" => Lamb;
        }
    };
}
