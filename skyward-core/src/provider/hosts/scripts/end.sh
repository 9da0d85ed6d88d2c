# Ends a machine and gives its slot back. The lines before this one set: machine name.
# No claim is half made from here on.
enter
exec 8<&-
look_up_machine "$machine"
if [ -n "$file" ]; then
    look_up "$file" keeper
    keeper=$said
    # Only while it holds the claim is that number the keeper's.
    if held "$file"; then
        kill -TERM "$keeper" 2>/dev/null || :
        # It ends the machine, and two that do so are slower than one.
        released "$file" 1 || :
    fi
fi
end_machine "$machine" "$base/$name"
[ -n "$file" ] || exit 0

# Whether the record is this machine's still.
is_its_own() {
    look_up "$file" machine
    [ "$said" = "$machine" ]
}

if held "$file" && is_its_own; then
    # One that is stopped hears nothing, and has nothing left to do. Its own shells are of its group: one of them that is stopped holds the claim without it.
    kill -s KILL -- "-$keeper" 2>/dev/null || :
    if ! released "$file" 10 && is_its_own; then
        echo "error: the keeper of the machine does not end: process $keeper" >&2
        exit 1
    fi
fi
enter
if is_its_own && ! held "$file"; then
    : >"$file"
fi
