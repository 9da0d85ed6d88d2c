# Makes what follows independent of the variables by which a user changes shells and their tools. It
# also stands in launchers, whose lines are joined to one: it has no single quotes and no exclamation
# marks, and each command ends with a semicolon.
#
# bash alone takes functions and options from the environment; with -p it takes none. It reads no
# start-up file either, also below a server of SSH. Whether it has -p is seen by the text that it
# runs, because an exported SHELLOPTS can claim that.
case ${BASH_VERSION:+$BASH_EXECUTION_STRING} in
"" | ": as is; "*) ;;
*) exec "$BASH" --norc --posix -pc ": as is; $BASH_EXECUTION_STRING" "$0" "$@" ;;
esac;
unset BASH_COMPAT BASH_ENV BASH_XTRACEFD BLOCKSIZE BLOCK_SIZE CDPATH DF_BLOCK_SIZE ENV EXECIGNORE FUNCNEST GLOBIGNORE;
unset GREP_COLOR GREP_COLORS GREP_OPTIONS GZIP POSIXLY_CORRECT QUOTING_STYLE TAR_OPTIONS TMOUT XZ_OPT ZSTD_CLEVEL;
case ${BASH_VERSION:-} in ?*) set -o posix; export -n BASHOPTS SHELLOPTS ;; esac;
