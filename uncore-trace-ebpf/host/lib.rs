#![cfg_attr(target_arch = "bpf", no_std)]
