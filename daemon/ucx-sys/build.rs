//! Finds the system's UCX: `UCX_DIR` if set, else pkg-config.
fn main() {
    println!("cargo:rerun-if-env-changed=UCX_DIR");
    if let Ok(dir) = std::env::var("UCX_DIR") {
        println!("cargo:rustc-link-search=native={dir}/lib");
        println!("cargo:rustc-link-lib=dylib=ucp");
        println!("cargo:rustc-link-lib=dylib=ucs");
        return;
    }
    if let Err(e) = pkg_config::Config::new()
        .atleast_version("1.13")
        .probe("ucx")
    {
        println!("cargo:warning={e}");
        eprintln!("UCX 1.13 or newer not found: run scripts/setup.sh, or set UCX_DIR");
        std::process::exit(1);
    }
}
