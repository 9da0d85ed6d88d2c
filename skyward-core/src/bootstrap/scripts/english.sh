# The client reads what tools print: in English and without colours. Their characters remain those of
# the user, because packages are built from them.
export LC_CTYPE="${LC_ALL:-${LC_CTYPE:-${LANG:-}}}" LC_MESSAGES=C LC_NUMERIC=C NO_COLOR=1
unset LC_ALL LANGUAGE CLICOLOR_FORCE FORCE_COLOR
