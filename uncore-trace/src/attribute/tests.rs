mod simulation;
pub(super) mod split_mix;
