//! `longhaul serve` on hosts of a lab.

/// Shell function `serve HOST DIRECTORY`: starts a server on a host and sets a variable, the host's name
/// in upper case, to its address. The user in `$USER` may log in and start third-party transfers.
pub(crate) const SCRIPT: &str = r#"
USER=lab:far-away
echo far-away | "$LONGHAUL" user add --users users --password-stdin lab 2>/dev/null
serve() {
    serve_name=$(echo "$1" | tr a-z A-Z)
    eval "serve_address=\$LAB_$serve_name"
    on "$1" "$LONGHAUL" serve --listen "$serve_address:0" --users users --clear-passwords --root "$2" \
        > "listening.$1" 2> "serve.$1.log" &
    serve_wait=0
    until grep -q '^listening on ' "listening.$1"; do
        serve_wait=$((serve_wait + 1))
        [ $serve_wait -lt 500 ] || { cat "serve.$1.log" >&2; return 1; }
        sleep 0.02
    done
    eval "$serve_name=\$(sed -n 's/^listening on //p' listening.$1)"
}
"#;
