"""FusedForm + Schedule -> TileProgram -> TileLang source -> kernel.

TileProgram := Parameter*, Kernel*
Kernel      := grid, Buffer*, Statement*
Statement   := Copy | Keep | Contract | Fill | ReduceTile | JoinBest | Parallel | Loop | Last
"""
