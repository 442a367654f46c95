# bash completion of gpudays. The program itself knows what can follow; see its source,
# cmd_completion.c. In ~/.bashrc: source <(gpudays completion bash)
# shellcheck shell=bash
_gpudays() {
  local -a words=()
  local word kind joined=
  # bash has cut the line at each "=" too; what belongs to "--option=value" is joined again.
  for word in "${COMP_WORDS[@]:1:COMP_CWORD}"; do
    if [[ ${#words[@]} -gt 0 && ( $word == "=" || -n $joined ) && ${words[-1]} == --* ]]; then
      words[-1]+=$word
      joined=
      [[ $word != "=" ]] || joined=1
    else
      words+=("$word")
      joined=
    fi
  done
  COMPREPLY=()
  {
    read -r kind
    while IFS=$'\t' read -r word _; do
      COMPREPLY+=("$word")
    done
  } < <("${COMP_WORDS[0]/#\~/$HOME}" completion words -- "${words[@]}" 2>/dev/null)
  # It replaces only what stands behind the "=".
  if [[ ${words[-1]} == --*=* && $COMP_WORDBREAKS == *=* ]]; then
    COMPREPLY=("${COMPREPLY[@]#*=}")
    words[-1]=${words[-1]#*=}
  fi
  case $kind in
    files*) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -f -- "${words[-1]}") ;;
    folders*) mapfile -t -O "${#COMPREPLY[@]}" COMPREPLY < <(compgen -d -- "${words[-1]}") ;;
  esac
  # Outside of bash's completion, as in tests, there are no options to set.
  case $kind in
    files* | folders*) compopt -o filenames ;;
    *open) compopt -o nospace ;;
  esac 2>/dev/null || true
}
complete -F _gpudays gpudays
