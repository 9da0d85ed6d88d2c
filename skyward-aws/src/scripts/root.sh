# Runs a script as root.
as_root() {
    if [ "$(id -u)" = 0 ]; then
        sh -euc "$1"
    else
        sudo -n sh -euc "$1"
    fi
}
