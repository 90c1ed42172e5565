# shellcheck shell=bash
# What scripts/demo, scripts/install and scripts/test share: root, packages, Rust. Sourced from the top of the checkout.

steps=0 step=0 # how many there will be, set by the script, and the current one
minimum_rust=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml)

# Under sudo the caller builds, so that target/ and ~/.cargo stay theirs; root only does what needs root.
builder=root
if [ "$(stat -c %U .)" = "${SUDO_USER:-}" ]; then builder=$SUDO_USER; fi

# step <title>: announces the next step, with the time so far.
step() {
    step=$((step + 1))
    printf '\n[%d/%d] %d:%02d %s\n' "$step" "$steps" $((SECONDS / 60)) $((SECONDS % 60)) "$*"
}

fail() {
    printf '%s: %s\n' "${0##*/}" "$*" >&2
    exit 1
}

need_root() {
    [ "$(id -u)" -eq 0 ] || fail "run as root: sudo scripts/${0##*/}"
}

home_of() {
    getent passwd "$1" | cut -d: -f6
}

as_builder() {
    if [ "$builder" = root ]; then
        "$@"
    else
        runuser -u "$builder" -- env HOME="$(home_of "$builder")" "$@"
    fi
}

# What root wrote into target/ (test output, measurements) goes back to the builder.
own_target() {
    if [ "$builder" != root ] && [ -d target ]; then chown -Rh "$builder:" target; fi
}

# quietly <what> <command...>: one line with a dot every two seconds; the command's output only if it fails.
quietly() {
    local log dots status=0
    log=$(mktemp)
    printf '  %s ' "$1"
    shift
    while sleep 2 && kill -0 $$ 2>/dev/null; do printf .; done &
    dots=$!
    "$@" >"$log" 2>&1 || status=$?
    kill "$dots"
    wait "$dots" 2>/dev/null || true
    if [ "$status" -eq 0 ]; then echo ' done'; else echo ' failed' && cat "$log" >&2; fi
    rm -f "$log"
    return "$status"
}

# install_packages <package...>: those that are missing, if any.
install_packages() {
    if ! command -v apt-get >/dev/null; then
        echo "  no apt-get here: what follows needs your system's packages of $*"
        return
    fi
    local package missing=()
    for package; do
        dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null | grep -qx installed || missing+=("$package")
    done
    [ "${#missing[@]}" -gt 0 ] || return 0
    refresh_package_lists
    # --no-remove: rather stop than take something away from this machine.
    quietly "installing ${missing[*]}" env DEBIAN_FRONTEND=noninteractive \
        apt-get -o DPkg::Lock::Timeout=120 install -y --no-remove --no-install-recommends "${missing[@]}" ||
        fail "could not install ${missing[*]}"
}

# Once in a run; a failure matters only if a package is then not found.
refresh_package_lists() {
    [ -n "${lists_are_fresh:-}" ] || quietly 'updating the package lists' apt-get update || true
    lists_are_fresh=yes
}

# at_least <minimum> <version>
at_least() {
    printf '%s\n%s\n' "$1" "$2" | sort -V -C
}

# Do cargo and a rustc that is new enough work for the builder?
has_rust() {
    local version
    version=$(as_builder rustc --version 2>/dev/null | cut -d ' ' -f 2) &&
        as_builder cargo --version >/dev/null 2>&1 && at_least "$minimum_rust" "$version"
}

# find_rust: puts a cargo in PATH that works for the builder and for root alike, or ends with advice.
find_rust() {
    local path=$PATH given=${RUSTUP_HOME:-} user home
    # Root has to see the builder's downloads too, or it would fetch and build everything again.
    CARGO_HOME=${CARGO_HOME:-$(home_of "$builder")/.cargo}
    export CARGO_HOME
    # rustup's Rust goes first, as rustup itself arranges it.
    for user in "$builder" "${SUDO_USER:-root}"; do
        home=$(home_of "$user")
        [ -x "$home/.cargo/bin/cargo" ] || continue
        export PATH=$home/.cargo/bin:$path RUSTUP_HOME=${given:-$home/.rustup}
        if has_rust; then return; fi
    done
    PATH=$path
    if [ -z "$given" ]; then unset RUSTUP_HOME; fi
    has_rust || install_rust ||
        fail "Rust $minimum_rust is needed, and no package has it: see https://rustup.rs, or run 'rustup update stable'"
}

# The distribution's Rust. Debian and Ubuntu name the default package plainly; Ubuntu has newer ones with their version
# in the name, and Debian 12 has one for building browsers, "-web".
install_rust() {
    command -v apt-get >/dev/null || return
    refresh_package_lists
    local suffix version
    for suffix in '' $(apt-cache pkgnames rustc- | grep -E '^rustc-([0-9.]+|web)$' | sort -rV | sed 's/^rustc//'); do
        version=$(apt-cache policy "rustc$suffix" | awk '/Candidate:/ { print $2 }')
        if [[ $version != [0-9]* ]] || ! at_least "$minimum_rust" "$version"; then continue; fi
        install_packages "cargo$suffix" "rustc$suffix"
        PATH=/usr/lib/rust$suffix/bin:$PATH # where the versioned ones live
        has_rust
        return
    done
    return 1
}

# find_lints: cargo fmt and cargo clippy to go with the cargo that was found.
find_lints() {
    local suffix package tool
    # A distribution's cargo belongs to a package, and so do its companions.
    if suffix=$(dpkg -S "$(command -v cargo)" 2>/dev/null) && [[ $suffix == cargo* ]]; then
        suffix=${suffix%%:*} suffix=${suffix#cargo}
        for package in "rustfmt$suffix" "rust$suffix-clippy"; do
            if apt-cache show "$package" >/dev/null 2>&1; then install_packages "$package"; fi
        done
    fi
    for tool in fmt clippy; do
        as_builder cargo "$tool" --version >/dev/null 2>&1 ||
            fail "no 'cargo $tool': run 'rustup component add rustfmt clippy' (without rustup: https://rustup.rs)"
    done
}
