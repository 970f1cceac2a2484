//! Names of AMD's and HiSilicon's events and metrics.
