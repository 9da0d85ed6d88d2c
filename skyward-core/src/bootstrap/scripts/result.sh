# Makes a result that pools share. A result is one folder of the cache: a kind, a name, a number.

# Begins the next result, because the newest one may be in use and cannot be used any more.
begin_next() {
    pointer=$cache/$1/.newest-$2
    number=1
    [ ! -e "$pointer" ] || read -r number <"$pointer"
    echo $((number + 1)) >"$pointer.$$"
    mv -f "$pointer.$$" "$pointer"
    find_results
}

# Names some of the files that were changed after a result was made.
changed_files() {
    changes_of "$1" | sed -n 's#^[^=]*=[^/]*/[^/]*/##p' | LC_ALL=C sort -u | head -n 3 | tr '\n' ' '
}

# Records what a result has, so that a change is found.
record() {
    (content_of "$1") >"$1/.content-$$"
    mv -f "$1/.content-$$" "$1/.content"
}

# Records that the worker package is ready for the environment, unless one was changed meanwhile.
record_both() {
    (content_of "$env" "$worker") >"$worker/.ready-$$"
    if are_unchanged "$env" "$worker"; then
        mv -f "$worker/.ready-$$" "$worker/.ready-$key-$arch"
    else
        rm -f "$worker/.ready-$$"
    fi
}
