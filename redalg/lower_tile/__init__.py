"""FusedForm + Schedule -> TileProgram -> TileLang source -> kernel.

TileProgram := Parameter*, Kernel*
Kernel      := grid, Buffer*, Statement*
Statement   := Copy | Contract | Fill | ReduceTile | JoinBest | Parallel | Loop | Last
"""
