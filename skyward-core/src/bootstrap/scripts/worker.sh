# Unpacks and compiles the worker package. Earlier lines set: unpack.
unset PYTHONHOME PYTHONPATH
if [ -e "$worker/.content" ] && ! are_unchanged "$worker"; then
    echo "files of the worker package were changed, so it is unpacked anew: $(changed_files "$worker")"
    begin_next worker "$digest"
fi
"$python" -c "$unpack" "$worker"
[ -e "$worker/.content" ] || record "$worker"
record_both
