#include "textflag.h"

// func int80(nr uintptr) uintptr
// A system call without arguments by the entry point of 32-bit programs.
TEXT ·int80(SB), NOSPLIT, $0-16
	MOVQ nr+0(FP), AX
	XORL BX, BX
	XORL CX, CX
	XORL DX, DX
	INT  $0x80
	MOVQ AX, ret+8(FP)
	RET
